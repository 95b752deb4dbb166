"""The verdict on a run: each rule that applies, what was found, and what is allowed."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Check:
    """One rule: what was found and what is allowed, both as text, and whether the run passes.

    ``source`` is the sentence from which the rule comes, or "" if the rules of the run name none.
    """

    rule: str
    found: str
    allowed: str
    ok: bool
    source: str = ""


@dataclass(frozen=True, slots=True)
class Validity:
    """The verdict on one run.

    ``submittable`` says whether this result can be submitted if it is valid. One run of a session cannot.
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
