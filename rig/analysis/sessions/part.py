"""A run of a session."""

from dataclasses import dataclass

from rig.analysis.result.result import Result
from rig.recording.reader import Run


@dataclass(frozen=True)
class Part:
    """One run of a session, read and evaluated."""

    name: str
    purpose: str
    run: Run
    result: Result

    @property
    def configuration(self) -> str:
        """Return the configuration of the system in the run."""
        return self.run.start.configuration
