"""The judgement of one rule: what was found, and what is allowed."""

from dataclasses import dataclass

from reports.audit.folder.reading import clean

ROUNDING = 1e-9
Judged = tuple[str, object, object, object]
"""The name of a rule, what was found, what is allowed, and whether the rule is kept."""


@dataclass(frozen=True)
class Rule:
    """One rule: what was found against what is allowed. ``run`` is "" for a rule about a whole session."""

    run: str
    rule: str
    found: str
    allowed: str
    ok: bool

    @property
    def said(self) -> str:
        """Return the rule on one line."""
        return f"{self.run + ': ' if self.run else ''}{self.rule} {self.found}, allowed {self.allowed}"


def written(run: str, judged: list[Judged]) -> list[Rule]:
    """Return rules as the audit shows them, with untrusted text on one line."""
    return [Rule(clean(run), clean(rule), clean(found), clean(most), bool(ok)) for rule, found, most, ok in judged]


def at_most(rule: str, found: float, most: float, unit: str = "") -> Judged:
    """Judge a rule about a number that may not exceed ``most``."""
    return rule, f"{found:.6g}{unit}", f"at most {most:g}{unit}", found <= most


def none(rule: str, found: int, of: object = None) -> Judged:
    """Judge a rule about something that may not occur."""
    return rule, found if of is None else f"{found} of {of}", 0, found == 0
