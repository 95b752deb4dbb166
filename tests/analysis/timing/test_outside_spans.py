"""Work that continues after spans end is found."""

import msgspec
import numpy as np
import pytest

from rig.analysis.timing.counted_spans import Activity, Phase
from rig.analysis.timing.outside_spans import _longer


@pytest.mark.parametrize(("until_s", "goes_on_s"), [(3.2, 0.2), (2.9, 0.0)])
def test_the_time_of_work_after_spans_is_a_plain_number(until_s: float, goes_on_s: float) -> None:
    """This time becomes a bias, and MessagePack and JSON of msgspec take no numbers of NumPy."""
    once, none = np.ones(3, np.int64), np.zeros((0, 2))
    phase = Phase(np.array([[0.0, 1.0], [2.0, 3.0], [4.0, 5.0]]), once, once, np.arange(3))
    activity = Activity({"inference": phase}, {"inference": phase}, none, none, none, False)
    found = _longer(activity, np.array([[until_s - 0.2, until_s]]), 0.01)["inference"].goes_on_s
    assert found == pytest.approx(goes_on_s)
    assert msgspec.json.encode(found)
