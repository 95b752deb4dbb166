"""Define a finding, which a reader of a result must know: a note, a refusal of figures, or the check of a rule."""

from typing import Literal

from msgspec import Struct

from rig.analysis.result.quantity import FigureKey

Effect = Literal["check", "note", "refusal"]


class Finding(Struct, frozen=True):
    """What was found, what is allowed, what follows for the result, and what to change.

    A check has a ``rule`` and passes if it is ``ok``. Its ``source`` is the sentence from which the rule comes, or ""
    if the rules of the run name none. ``by`` is the key of this sentence in the rules: a field of ``Rules``, or a
    figure. With ``told``, a failed check is also a note, whatever the rules are. A refusal replaces the figures of
    ``scope``, which is the key of one figure, or words for several. Its ``found`` is the reason. In a note, ``found``
    is the sentence.
    """

    rule: str
    found: str
    allowed: str = ""
    ok: bool = False
    source: str = ""
    effect: Effect = "check"
    scope: FigureKey | str = ""
    remedy: str = ""
    told: bool = False
    by: str = "*"

    @property
    def reason(self) -> str:
        """Return why figures are refused."""
        return self.found

    @property
    def text(self) -> str:
        """Return the finding in the words of a note."""
        return ": ".join(filter(None, (self.rule, self.found))) + (f", allowed: {self.allowed}" if self.allowed else "")


def at_least(rule: str, found: float, least: float, by: str, form: str = "{}") -> Finding:
    """Return the check that a number is no smaller than the rule ``by`` allows; ``form`` writes both numbers."""
    return Finding(rule, form.format(found), f"at least {form.format(least)}", found >= least, by=by)


def at_most(rule: str, found: float, most: float, by: str, form: str = "{}") -> Finding:
    """Return the check that a number is no larger than the rule ``by`` allows; ``form`` writes both numbers."""
    return Finding(rule, form.format(found), f"at most {form.format(most)}", found <= most, by=by)


def note(text: str) -> Finding:
    """Return a sentence that is shown beside the figures."""
    return Finding("", text, effect="note")


def refusal(scope: FigureKey | str, reason: str, remedy: str) -> Finding:
    """Return the refusal of figures that the recording cannot support: what, why, and what to change."""
    return Finding("", reason, effect="refusal", scope=scope, remedy=remedy)
