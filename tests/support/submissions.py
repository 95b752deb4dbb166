"""Submissions of short sessions on the simulated bench."""

from pathlib import Path
from typing import Any

from rig.bench.request import Request
from rig.session.measure import measure
from rig.submission.folder import Submitted, submit

SMALL = ("samples=6", "audio_hz=1000", "idle_s=0.5")
WHOLE = "\n".join(
    f'{name} = "{text}"'
    for name, text in {
        "title": "A mock", "organization": "A lab", "contact": "lab@example.org", "date": "2026-11-22",
        "availability": "research", "system": "a mock", "model": "none", "tuning": "none", "split": "none was trained",
        "components": "core; nothing is left out", "host": "nothing",
        "software": "this repository", "licence": "CC0-1.0",
    }.items()
)  # fmt: skip
"""A ``submission.toml`` with everything filled in."""


def session(folder: Path, *options: str, **more: Any) -> Path:
    """Return a session of the mock in ``folder``, in virtual time; later options replace earlier ones."""
    given = {"device": "mock", "meters": ("mock",), "scenario": "single-stream", "argv": ()} | more
    return measure(Request(options=(*SMALL, *options), out=folder, **given), quiet=True)


def submitted(folder: Path, *sessions: Path, about: str = WHOLE, **more: Any) -> Submitted:
    """Return a submission in ``folder/sub``."""
    folder.mkdir(exist_ok=True)
    (folder / "submission.toml").write_text(about)
    return submit(sessions, folder / "submission.toml", folder / "sub", **more)
