"""The type of the fixture ``play``, which records steps that end in an error."""

from __future__ import annotations

from collections.abc import Callable

from rig.errors import Ended
from rig.recording.reader import Run

Play = Callable[..., tuple[Ended, Run]]
