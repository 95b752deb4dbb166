"""What a recording as a whole is told of beside its figures."""

from __future__ import annotations

from pathlib import Path

import pytest

from rig.analysis.verdict.recording_notes import remarks_of
from tests.support.serving import Asked, recording


@pytest.mark.parametrize(("asked_hz", "told"), [(10.0, False), (13.0, True)])
def test_a_draw_of_arrivals_far_from_the_rate_that_was_asked_is_told(
    asked_hz: float, told: bool, tmp_path: Path
) -> None:
    every = [Asked(0.1 * k, 0.1 * k, 0.1 * k + 0.05) for k in range(20)]
    remarks = remarks_of(recording(tmp_path / "run", every, options={"arrival_hz": asked_hz}))
    assert any("due at 10 Hz" in remark for remark in remarks) is told
