"""An evaluation that would wait endlessly for memory is refused before it begins."""

from __future__ import annotations

import pytest

from rig.analysis import evaluate
from rig.errors import MeasurementRefusedError


def test_a_process_that_gets_no_memory_for_its_libraries_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    # OpenBLAS would retry endlessly
    monkeypatch.setattr(evaluate, "LIBRARY_BYTES", 1 << 60)
    with pytest.raises(MeasurementRefusedError, match="which is refused"):
        evaluate.check_memory()
