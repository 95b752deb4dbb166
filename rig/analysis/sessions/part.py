"""A run of a session."""

from msgspec import Struct

from rig.analysis.result.result import Result
from rig.recording.reader import Run


class Part(Struct, frozen=True):
    """One run of a session, read and evaluated."""

    name: str
    purpose: str
    run: Run
    result: Result

    @property
    def configuration(self) -> str:
        """Return the configuration of the system in the run."""
        return self.run.start.configuration
