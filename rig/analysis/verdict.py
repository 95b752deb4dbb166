"""The verdict on a run: each rule that applies, what was found, and what is allowed."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Check:
    """One rule: what was found and what is allowed, both as text, and whether the run passes."""

    rule: str
    found: str
    allowed: str
    ok: bool


@dataclass(frozen=True, slots=True)
class Validity:
    """The verdict on one run.

    ``submittable`` says whether results by these rules can be submitted.
    """

    rules: str
    source: str
    submittable: bool
    checks: tuple[Check, ...]

    @property
    def valid(self) -> bool:
        """Return whether every check passes."""
        return all(check.ok for check in self.checks)

    @property
    def verdict(self) -> str:
        """Return VALID or INVALID."""
        return "VALID" if self.valid else "INVALID"
