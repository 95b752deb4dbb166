"""The audit of one path: open it, derive its figures, compare the claims, judge the rules, run the checks."""

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from reports.audit import work_checks
from reports.audit.evidence import Again, Anchor, Check, Compared, Doubtful, Evidence, NotApplicable, compared
from reports.audit.figures import Figures
from reports.audit.folder import checks as folder_checks
from reports.audit.folder.hashes import MANIFEST, MANIFEST_BYTES, SIGNATURE
from reports.audit.folder.reading import TEXT_BYTES, WHAT_TO_NAME, clean, held, read_bytes, refuse
from reports.audit.folder.signature import verify
from reports.audit.judged import Rule
from reports.audit.power import checks as power_checks
from reports.audit.rules import judge_run, judge_session, modes_of, values_of
from reports.audit.subject import Claim, Part, Subject, claims_in, claims_of_trial, compute, of_session, open_subject
from rig.errors import RigError, StoreError

OF_THE_FOLDER = (1, 2, 3)
"""The checks that need no run."""
NOBODY = "the file of signers does not allow the submission's key for submissions today"
UNVERIFIED = "its signature is not verified, because ssh-keygen is not installed; install OpenSSH"


@dataclass(frozen=True)
class Audit:
    """The findings of the audit of one path."""

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
    """The claimed figures that the auditor cannot compute by a method of its own."""
    simulated: bool
    unfit: tuple[str, ...]
    """The recorded sets of rules that do not allow a submission."""
    claimed: int = 0
    """The number of claimed figures in all runs and sessions."""
    invalid: tuple[str, ...] = ()
    """The rows that the submission itself calls INVALID."""
    beside: tuple[str, ...] = ()
    """The files in folders named ``derived``, except the claims of a session or run. No hash covers these files."""
    remade: str = ""
    """For a submission: how its pages compare with the same pages generated again."""

    @property
    def failed(self) -> list[Check]:
        """Return the checks that failed."""
        return [c for c in self.checks if c.outcome == "failed"]


def audit(
    path: Path, *, signers: str | None = None, roots: Sequence[str] = (), quick: bool = False, again: Again = None
) -> Audit:
    """Audit a run, a session or a submission; ``reports.submission.archive`` unpacks the archive of a submission.

    ``signers`` is the text of a file of allowed signers, ``roots`` are published root hashes. Raises ``StoreError`` if
    the path holds nothing that can be audited.
    """
    if not path.exists():
        refuse(path.name or path, "does not exist", path.name, WHAT_TO_NAME)
    if not path.is_dir():
        refuse(path.name or path, "is neither a folder nor an archive (.zip, .tar.gz)")
    try:
        return _audit(path, signers, roots, quick, again)
    except (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError, OSError) as error:
        if sys.flags.dev_mode:
            raise
        what, remedy = "holds a value of a kind that no recording has", "Ask for the original"
        if isinstance(error, OSError):
            what, remedy = "cannot be read", "Check its permissions, and the limits of this process (`ulimit -a`)"
        refuse(path.name, f"{what}: {error}", path.name, remedy)


def _audit(path: Path, signers: str | None, roots: Sequence[str], quick: bool, again: Again) -> Audit:
    subject = open_subject(path)
    for part in subject.parts:
        if not quick:
            compute(part)
        part.rules += _rules(part)
    rules = tuple(rule for part in subject.parts for rule in part.rules)
    claims, figures, left, claimed = dict[str, dict[str, Claim]](), list[Compared](), set[str](), 0
    for scope, own, plain in _claimed(subject, quick):
        claims |= {scope: own} if own else {}
        figures += compared(scope, own, plain)
        claimed += len(own)
        left |= set() if quick else set(own) - set(plain)
    anchor = anchor_of(subject, signers, roots)
    checks = run_checks(Evidence(subject, rules, tuple(figures), anchor, quick, claims, again))
    runs = [run for _, run in subject.runs]
    sets = [(run.start.get("rules") or {}, values_of(run)[0] or {}) for run in runs if not run.start.get("imported")]
    unfit = sorted({clean(told.get("name") or "no rules") for told, known in sets if not known.get("submittable")})
    return Audit(
        subject.name, subject.kind, subject.root, anchor.words, anchor.holds, quick, tuple(checks), rules,
        tuple(figures), tuple(sorted(left)), set().union(*map(modes_of, runs)) != {"hardware"}, tuple(unfit),
        claimed, tuple(clean(row["name"]) for row, _ in subject.configurations if row["verdict"] == "INVALID"),
        subject.beside,
    )  # fmt: skip


def _rules(part: Part) -> list[Rule]:
    """Judge the rules of a part (a session or a lone run). Probes of a search are not judged, since some must fail."""
    found: list[Rule] = []
    values = None
    for run in part.asked:
        values, _ = values_of(run)
        found += judge_run(run, values) if values is not None else []
    if values is not None and (part.bound or values["session"]):
        found += judge_session(part.asked, values, part.plain)
    return found


def _claimed(subject: Subject, quick: bool) -> Iterator[tuple[str, dict[str, Claim], Figures]]:
    """Yield the place, the claims and the plain figures of each run and session, or of each trial of a submission."""
    if subject.submission is not None:
        for one, parts in subject.configurations:
            for number, part in enumerate(parts):
                plain = {} if quick else of_session(part)
                yield clean(one["sessions"][number]), claims_of_trial(one, number), plain
        return
    (part,) = subject.parts
    whole = {} if quick else of_session(part)
    yield "." if part.bound else part.name, claims_in(part.folder), whole
    for run in part.runs if part.bound else ():
        yield clean(run.path.name), claims_in(run.path), part.plain.get(run.path.name, {})


def anchor_of(subject: Subject, signers: str | None, roots: Sequence[str]) -> Anchor:
    """Find what ties the recording to a signer or a published root hash. A tie that was asked for must be there."""
    asked, by, faults = signers is not None or bool(roots), list[str](), list[str]()
    place = subject.path / SIGNATURE
    if subject.submission is not None and (place.is_file() or place.is_symlink()):
        try:
            message = read_bytes(subject.path / MANIFEST, MANIFEST_BYTES)
            found = verify(message, read_bytes(place, TEXT_BYTES), signers or "")
            by += [f"anchored by the signature of {clean(found.who)} ({found.fingerprint})"] * bool(found.who)
            faults += [f"{NOBODY}: {found.fingerprint}"] if signers is not None and not found.who else []
        except FileNotFoundError:
            faults += [UNVERIFIED] * (signers is not None)
        except StoreError as error:
            faults.append(error.message)
    elif signers is not None:
        faults.append("it is not signed")
    if subject.root in roots:
        by.append("anchored by the published root hash")
    elif roots:
        faults.append(f"the root hash is {subject.root}, and the published one is {' or '.join(roots)}")
    against = ["altered after it was hashed, not anchored"] * bool(subject.ledger.faults) + faults
    words = "; ".join(map(clean, against or by or ["self-consistent, not anchored"]))
    return Anchor(words, bool(by) and not against, asked or bool(faults))


def run_checks(evidence: Evidence) -> list[Check]:
    """Run every check of ``checks.json``, in the order of the numbers."""
    done, known = [], vars(folder_checks) | vars(power_checks) | vars(work_checks)
    for function, (number, name, source) in held("checks.json").items():
        head = (number, name)
        if not evidence.subject.runs and number not in OF_THE_FOLDER:
            done.append(Check(*head, "not applicable", "", "", source, "no run can be read"))
            continue
        try:
            faults, found, allowed = known[function](evidence)
        except NotApplicable as missing:
            done.append(Check(*head, "not applicable", "", "", source, clean(missing)))
            continue
        except Doubtful as doubt:
            done.append(Check(*head, "warned", shown(doubt.args), "nothing that a reader must be told", source))
            continue
        except RigError as error:
            faults, found, allowed = [error.message], "", "a recording that can be read"
        said = shown(faults) if faults else clean(found)
        done.append(Check(*head, "failed" if faults else "passed", said, allowed, source))
    return done


def shown(told: Sequence[str], most: int = 6) -> str:
    """Return the first findings, and how many more there are."""
    more = [f"and {len(told) - most} more"] if len(told) > most else []
    return "; ".join([*map(clean, told[:most]), *more])
