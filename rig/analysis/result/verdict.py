"""The words of the verdict on a result, VALID or INVALID, which follows from its checks."""

from typing import NamedTuple

from rig.analysis.result.finding import Finding

NEVER = "never submittable"
ALONE = "one run, submittable only as part of a session"
"""What is said beside the verdict on a result that cannot be submitted."""


class Ruling(NamedTuple):
    """The rules by which a result is judged, and whether it can be submitted if it is valid."""

    rules: str
    source: str
    submittable: bool


class Validity(NamedTuple):
    """The verdict on one run, or on a session, by its ruling and its checks."""

    rules: str
    source: str
    submittable: bool
    checks: tuple[Finding, ...]

    @property
    def valid(self) -> bool:
        return all(check.ok for check in self.checks)

    def verdict(self, power_refused: bool) -> str:
        """Return VALID or INVALID, or for which figures the result is valid."""
        if not self.valid:
            return "INVALID"
        return "VALID for times; power refused" if power_refused else "VALID"

    @property
    def counted(self) -> str:
        """Return in words how many rules failed, or that all passed."""
        failed, total = sum(not check.ok for check in self.checks), len(self.checks)
        return f"{failed} of {total} rules failed" if failed else f"{total} rules passed"
