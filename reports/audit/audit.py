"""The audit of one path: open it, derive its figures, compare the claims, judge the rules, run the checks."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from reports.audit.archive import is_archive, unpack
from reports.audit.checks import run_checks
from reports.audit.compare import Compared, compared
from reports.audit.evidence import Anchor, Check, Evidence
from reports.audit.files import TEXT_BYTES, clean, read_bytes, refuse
from reports.audit.hashes import MANIFEST, MANIFEST_BYTES, SIGNATURE
from reports.audit.rule_sets import values_of
from reports.audit.rules import Rule, judge_run
from reports.audit.session_rules import judge_session
from reports.audit.signature import verify
from reports.audit.subject import Claim, Part, Subject, claims_in, compute, of_session, open_subject
from rig.errors import MissingExtraError, StoreError

WORST = (2, 3, 30, 24, 13, 15, 25, 31)
"""Alterations come first, then claims that are not those of the recording, then all other checks."""
REMEDIES = {2: "Ask for the original", 3: "Compare the hash or key with what its author published", 31: "Fill them in"}
MEND = "Mend it and submit again, or ask its author"


@dataclass(frozen=True)
class Audit:
    """What the audit of one path found."""

    name: str
    kind: str
    root: str | None
    anchor: str
    anchored: bool
    quick: bool
    checks: tuple[Check, ...]
    rules: tuple[Rule, ...]
    compared: tuple[Compared, ...]
    not_compared: tuple[str, ...]
    """Claims for which the auditor has no method of its own."""
    simulated: bool
    unfit: tuple[str, ...]
    """The recorded sets of rules by which no one may submit."""

    @property
    def worst(self) -> tuple[str, str]:
        """The worst finding in a word, and in a sentence with what to do about it."""
        if self.failed:
            order = [*WORST, *range(32)]
            first, *more = sorted(self.failed, key=lambda c: order.index(c.number))
            others = f", and {len(more)} more" if more else ""
            return "FAILED", f"{first.name}: {first.found}{others}. {REMEDIES.get(first.number, MEND)}"
        if broken := [r for r in self.rules if not r.ok]:
            others = f", and {len(broken) - 1} more" if broken[1:] else ""
            return "INVALID", f"by its rules: {broken[0].said}{others}. Measure again so that the rules are kept"
        if self.unfit:
            sets = ", ".join(self.unfit)
            return "passed", f"but never submittable: judged by {sets}. Measure again with --rules neurobench-1.0"
        return "passed", self.anchor if self.anchored else f"{self.anchor}: give --signers FILE or --root HASH"

    @property
    def failed(self) -> list[Check]:
        """The checks that failed."""
        return [c for c in self.checks if c.outcome == "failed"]

    def count(self, outcome: str) -> int:
        """How many checks came out so."""
        return sum(c.outcome == outcome for c in self.checks)

    def to_json(self) -> dict[str, Any]:
        """The audit as a JSON object."""
        own = {key: getattr(self, key) for key in ("name", "kind", "root", "anchor", "anchored", "quick", "simulated")}
        figures = [asdict(c) | {"ok": c.ok, "sharp": c.sharp} for c in self.compared]
        own |= {
            "ok": not self.failed,
            "worst": ": ".join(self.worst),
            "checks": [asdict(c) for c in self.checks],
            "figures": figures,
        }
        return own | {"rules": [asdict(r) for r in self.rules], "not_compared": list(self.not_compared)}


def audit(path: Path, *, signers: str | None = None, roots: Sequence[str] = (), quick: bool = False) -> Audit:
    """Audit a run, a session, a submission, or an archive of a submission.

    ``signers`` is the text of a file of allowed signers, ``roots`` are published root hashes. Raises ``StoreError`` if
    the path holds nothing that can be audited.
    """
    if is_archive(path):
        with tempfile.TemporaryDirectory(prefix="audit-") as folder:
            return audit(unpack(path, Path(folder) / path.name), signers=signers, roots=roots, quick=quick)
    if not path.exists():
        remedy = "Name a run, a session or a submission, or its archive"
        raise StoreError(f"{path.name or path} does not exist", field="path", value=path.name, remedy=remedy)
    if not path.is_dir():
        refuse(path.name or path, "is neither a folder nor an archive (.zip, .tar.gz)")
    try:
        return _audit(path, signers, roots, quick)
    except (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError, OSError) as error:
        what = f"{clean(path.name)} holds a value of a kind that no recording has: {clean(error)}"
        remedy = "Ask for the original; `python -X dev` shows where it stands"
        if sys.flags.dev_mode:
            raise
        raise StoreError(what, field="audit", value=clean(path.name), remedy=remedy) from error


def _audit(path: Path, signers: str | None, roots: Sequence[str], quick: bool) -> Audit:
    subject = open_subject(path)
    if not quick:
        for part in subject.parts:
            compute(part)
    claims = _claims(subject)
    for part in subject.parts:
        part.rules += _rules(part)
    rules = [rule for part in subject.parts for rule in part.rules]
    figures = [] if quick else _compared(subject, claims)
    anchor = anchor_of(subject, signers, roots)
    values = {scope: {key: claim.value for key, claim in own.items()} for scope, own in claims.items()}
    evidence = Evidence(subject, tuple(rules), tuple(figures), anchor, quick, values)
    derived = {(c.scope, c.key) for c in figures}
    left = sorted({key for scope, own in claims.items() for key in own if not quick and (scope, key) not in derived})
    modes = {part.get("mode") for _, run in subject.runs for part in (run.start["device"], *run.start["meters"])}
    sets = [(run.start.get("rules") or {}, values_of(run)[0] or {}) for _, run in subject.runs
            if not run.start.get("imported")]  # fmt: skip
    unfit = sorted({clean(told.get("name") or "no rules") for told, known in sets if not known.get("submittable")})
    return Audit(
        subject.name, subject.kind, subject.root, anchor.words, anchor.holds, quick,
        tuple(run_checks(evidence)), tuple(rules), tuple(figures), tuple(left), modes != {"hardware"}, tuple(unfit),
    )  # fmt: skip


def _rules(part: Part) -> list[Rule]:
    """The rules of a part. A run by itself is judged too, except that a search has no trials."""
    found: list[Rule] = []
    values = None
    for run in part.runs:
        values, _ = values_of(run)
        if values is not None:
            found += judge_run(run, values)
    if values is not None and not part.searched and (part.bound or values["session"]):
        found += judge_session(part.runs, values, part.plain)
    return found


def _claims(subject: Subject) -> dict[str, dict[str, Claim]]:
    """The claims by what they are about: runs and sessions by their results, a submission by its trials."""
    found: dict[str, dict[str, Claim]] = {}
    if subject.submission is None:
        part = subject.parts[0]
        for name, folder in [("." if part.bound else part.name, part.folder)] + [
            (run.path.name, run.path) for run in part.runs if part.bound
        ]:
            found |= {clean(name): own} if (own := claims_in(folder)) else {}
        return found
    for one in subject.submission["configurations"]:
        for number, session in enumerate(one["sessions"]):
            own = {}
            for key, claim in one["claims"].items():
                low, high = claim.get("low"), claim.get("high")
                half = max(high - claim["value"], claim["value"] - low) if None not in (low, high) else 0.0
                spread = len(one["sessions"]) ** 0.5
                own[clean(key)] = Claim(float(claim["trials"][number]), clean(claim.get("unit", "")), half * spread)
            found[clean(session)] = own
    return found


def _compared(subject: Subject, claims: dict[str, dict[str, Claim]]) -> list[Compared]:
    found: list[Compared] = []
    for part in subject.parts:
        scope = f"sessions/{part.name}" if subject.submission is not None else "." if part.bound else part.name
        if scope in claims and not part.searched:
            found += compared(scope, claims[scope], of_session(part))
        for name, figures in part.plain.items():
            if part.bound and subject.submission is None and name in claims:
                found += compared(name, claims[name], figures)
    return found


def anchor_of(subject: Subject, signers: str | None, roots: Sequence[str]) -> Anchor:
    """What ties the recording to someone; what was asked for and is not so is a fault."""
    faults: list[str] = []
    signer = fingerprint = ""
    place = subject.path / SIGNATURE
    signed = subject.submission is not None and (place.is_file() or place.is_symlink())
    if signers is not None and not signed:
        faults.append("it is not signed")
    if signed:
        try:
            message = read_bytes(subject.path / MANIFEST, MANIFEST_BYTES)
            found = verify(message, read_bytes(place, TEXT_BYTES), signers or "")
            signer, fingerprint = found.who, found.fingerprint
            if signers is not None and not signer:
                faults.append(f"{found.why}: {fingerprint}")
        except MissingExtraError as error:
            if signers is not None:
                faults.append(f"{error.message}: {error.remedy}")
        except StoreError as error:
            faults.append(error.message)
    published = bool(roots) and subject.root in roots
    if roots and not published:
        faults.append(f"the root hash is {subject.root}, and the published one is {' or '.join(roots)}")
    asked, altered = signers is not None or bool(roots), bool(subject.ledger.faults)
    return Anchor(clean(signer), fingerprint, published, altered, tuple(map(clean, faults)), asked)
