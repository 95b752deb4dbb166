"""A network is not measured on its training data: the data that network and workload declare are compared."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rig.analysis.scores.accuracy import seen_checks
from tests.support.serving import recording

FOLDER = {"source": "folder", "listing_sha256": "a"}


@pytest.mark.parametrize(
    ("trained_on", "own", "apart"),
    [
        ({**FOLDER, "split": "train", "fold": "1/4"}, {**FOLDER, "split": "test", "fold": "1/4"}, [True]),
        ({**FOLDER, "split": "train", "fold": "1/4"}, {**FOLDER, "split": "test", "fold": "2/4"}, [False]),
        ({**FOLDER, "split": "train", "fold": "1/4"}, {**FOLDER, "split": "train", "fold": "1/4"}, [False]),
        ({**FOLDER, "split": "train", "fold": "1/4"}, {**FOLDER, "split": "test"}, [False]),
        ({**FOLDER, "split": "train"}, {**FOLDER, "split": "test"}, [False]),
        ({**FOLDER, "split": "train"}, {**FOLDER, "split": "test", "listing_sha256": "b"}, []),
        ({"source": "synthetic", "split": "train"}, {"source": "synthetic", "split": "test"}, [True]),
        ({"source": "synthetic", "split": "train"}, {"source": "synthetic", "split": "train"}, [False]),
        ("by hand", {"source": "synthetic", "split": "train"}, []),
        (None, {"source": "synthetic", "split": "train"}, []),
    ],
)
def test_the_part_that_is_measured_must_not_be_the_part_that_was_learnt(
    trained_on: Any, own: dict[str, Any], apart: list[bool], tmp_path: Path
) -> None:
    checks = list(seen_checks(recording(tmp_path / "run", (), details=own, training=trained_on)))
    assert [c.ok for c in checks] == apart
