"""The input of the checks, and the result of one check."""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from reports.audit.figures import Figures
from reports.audit.folder.reading import Run
from reports.audit.judged import Rule
from reports.audit.rules import values_of
from reports.audit.subject import Claim, Part, Subject
from reports.audit.tolerances import SHARP

Again = Callable[[Run], Iterable[str]] | None
"""Imports a run's originals again, by code of the rig that the auditor does not import; returns how the runs differ."""
Outcome = Literal["passed", "warned", "failed", "not applicable"]


@dataclass(frozen=True)
class Check:
    """The result of one check. ``why`` says what is missing if the check does not apply."""

    number: int
    name: str
    outcome: Outcome
    found: str
    allowed: str
    source: str
    why: str = ""


@dataclass(frozen=True)
class Anchor:
    """The tie of the recording to someone: a good signature of an allowed signer, or a published root hash."""

    words: str
    holds: bool
    asked: bool
    """Whether to judge the anchor: signers or a root hash were given, or the signature or its file is bad."""


@dataclass(frozen=True)
class Compared:
    """A claimed figure and the auditor's plain figure, which may differ by ``allowed``, in the unit of both."""

    scope: str
    key: str
    unit: str
    claimed: float
    plain: float
    bound: float
    allowed: float
    method: str
    why: str

    @property
    def ok(self) -> bool:
        """Return whether both values agree; a value that is not a number agrees with none."""
        return bool(abs(self.claimed - self.plain) <= self.allowed)

    @property
    def said(self) -> str:
        """Return the comparison on one line."""
        plain = f"{self.plain:.6g} +- {self.allowed:.2g} {self.unit}"
        return f"{self.scope}: {self.key} is {self.claimed:.6g}, derived {plain}"

    @property
    def sharp(self) -> bool:
        """Return whether the plain method alone decides, without the interval of the claim."""
        return bool(self.allowed == self.bound)


def compared(scope: str, claims: Mapping[str, Claim], plain: Figures) -> list[Compared]:
    """Compare each claim that the auditor can derive with its plain figure.

    A plain method with a bound of up to 0.2 % decides alone; otherwise the interval of the claim is added to the bound.
    """
    found = []
    for key, claim in claims.items():
        if (own := plain.get(key)) is not None:
            sharp, size = own.bound <= SHARP * abs(own.value), abs(own.value)
            bound = own.bound + own.ends
            allowed = bound + (0.0 if sharp else claim.half_width + 4e-16 * size)
            why = own.why if sharp else f"{own.why}; and the interval of the claim"
            pair = (claim.value, own.value, bound, allowed)
            found.append(Compared(scope, key, claim.unit, *pair, own.method, why))
    return found


@dataclass(frozen=True)
class Evidence:
    """The input of the checks."""

    subject: Subject
    rules: tuple[Rule, ...]
    compared: tuple[Compared, ...]
    anchor: Anchor
    quick: bool
    claims: dict[str, dict[str, Claim]] = field(default_factory=dict)
    """The claims, by run, session or trial."""
    again: Again = None


class NotApplicable(Exception):
    """A check cannot be answered; the message says what is missing."""


class Doubtful(Exception):
    """No rule is broken, but a reader must be told the exception's arguments, which are doubts about the figures."""


def doubted(faults: list[str], doubts: list[str]) -> None:
    """Raise ``Doubtful`` with the doubts if there are doubts but no faults."""
    if doubts and not faults:
        raise Doubtful(*doubts)


Verdict = tuple[list[str], str, str]
"""The faults, the finding if there are no faults, and the limit."""


def each(evidence: Evidence, faults_of: Callable[[Run], Iterable[str]]) -> list[str]:
    """Return the faults of every run, with its name."""
    return [f"{name}: {fault}" for name, run in evidence.subject.runs for fault in faults_of(run)]


def unlike(evidence: Evidence, what: str, part_of: Callable[[Run], object]) -> list[str]:
    """Return a fault for each session whose runs differ in ``part_of``; runs without this part (None) do not count."""
    found = []
    for part in evidence.subject.parts:
        values = {json.dumps(value, sort_keys=True) for run in part.runs if (value := part_of(run)) is not None}
        found += [f"{part.name}: {what.format(len(values))}"] if len(values) > 1 else []
    return found


def rows_of(evidence: Evidence, what: str) -> list[tuple[dict[str, Any], list[Part]]]:
    """Return the rows of a submission with their sessions. Raises ``NotApplicable`` if this is no submission."""
    if evidence.subject.submission is None:
        raise NotApplicable(f"only a submission {what}")
    return evidence.subject.configurations


def asked(parts: Sequence[Part], key: str) -> Any:
    """Return one value from the rules of the first run in ``parts``; None if they are unknown."""
    values = next((values_of(run)[0] for part in parts for run in part.runs), None)
    return None if values is None else values[key]


def broken(evidence: Evidence, *begins: str) -> list[str]:
    """Return the broken rules whose names begin with one of ``begins``, as faults."""
    return [r.said for r in evidence.rules if r.rule.startswith(begins) and not r.ok]


def kept(evidence: Evidence, *begins: str) -> Verdict:
    """Judge the rules whose names begin with ``begins`` as one check. Raises ``NotApplicable`` if there are none."""
    mine = [r for r in evidence.rules if r.rule.startswith(begins)]
    if not mine:
        raise NotApplicable("no rule of the recorded set asks for it")
    least = next((r for r in mine if r.found), mine[0])
    found = f"{len(mine)} values as allowed, such as {least.rule}: {least.found}"
    return broken(evidence, *begins), found, least.allowed


def agreed(evidence: Evidence, faults: list[str], *words: str) -> Verdict:
    """Judge the claims whose names contain one of ``words`` against the plain figures, and add other ``faults``.

    Raises ``NotApplicable`` if there are neither claims nor faults.
    """
    mine = [c for c in evidence.compared if any(w in c.key for w in words)]
    if not mine and not faults:
        missing = "no such figure is claimed, or the auditor has no method of its own for it"
        raise NotApplicable("left out by --quick" if evidence.quick else missing)
    far = max(mine, key=lambda c: abs(c.claimed - c.plain) / c.allowed if c.allowed else 0.0).key if mine else "none"
    found = f"{len(mine)} figures agree; nearest to its limit is {far}"
    return faults + [c.said for c in mine if not c.ok], found, "claims within the bounds of the table of figures"
