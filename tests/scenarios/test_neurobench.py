"""neurobench-1.0."""

import time
import pytest
from tests.support.hardware_clothes import recorded


@pytest.mark.parametrize("scenario", ["single-stream", "optimization", "real-time", "offline", "server"])
def test_valid(scenario, tmp_path):
    t = time.time()
    s = recorded(scenario, tmp_path)
    r = s.result
    print(scenario, time.time() - t, len(r.validity.checks))
    for c in r.validity.checks:
        if not c.ok:
            print(c)
    print([str(x.scope) + x.reason for x in r.refusals], r.notes)
    assert r.validity.valid
