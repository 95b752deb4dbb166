"""The check of a submission by the rig's own code: all its pages are generated again from its sessions."""

from dataclasses import replace
from pathlib import Path

from reports.audit.audit import Audit, shown
from reports.audit.evidence import Check, Outcome
from reports.audit.folder.reading import clean
from reports.submission.leaderboard import EQUAL
from rig.errors import RigError

NUMBER, NAME = 32, "documents and pages, made again by the rig's own code and not the auditor's"
ALLOWED = "the same files and words; figures within a hundredth of their half-width, other numbers within a millionth"
SHOWN = 3
WHOLE = (1, 2)
"""The checks that a folder is complete and fits its hashes; the rig's own readers read only such folders."""
NOT_COMPARED = "pages not compared"
EQUALS = "submission.json and results.csv are equal; other versions or edits by hand changed the rest"
DIFFER = "submission.json or results.csv differs too, by less than the intervals of the figures as computed now"
UNEXPLAINED = "no version explains"


def with_pages(one: Audit, folder: Path) -> Audit:
    """Return the audit of a submission with this check added. Return any other audit unchanged."""
    if one.kind != "submission":
        return one
    damaged = [c.name for c in one.failed if c.number in WHOLE]
    if one.quick or damaged:
        why = f"the folder fails the check {damaged[0]!r}" if damaged else "left out by --quick"
        return _with(one, NOT_COMPARED, "not applicable", why=why)
    try:
        return _compared(one, folder)
    except RigError as error:
        said = error.message
    except (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError, OSError) as error:
        said = f"{type(error).__name__}: {error}"
    return _with(one, NOT_COMPARED, "failed", f"it cannot be made again: {clean(said)}")


def _compared(one: Audit, folder: Path) -> Audit:
    from rig.submission.again import made_again

    found = made_again(folder)
    if not found.others or not (found.pages or found.documents):
        faults, said = (*found.documents, *found.pages), "pages differ" if found.pages else EQUAL
        return _with(one, said, "failed" if faults else "passed", shown(faults, SHOWN) or "all is equal")
    others = clean(f"{NOT_COMPARED}: made with {', '.join(found.others)}")
    if found.unexplained:
        return _with(one, others, "failed", f"{others}; {UNEXPLAINED}: {shown(found.unexplained, SHOWN)}")
    if not found.documents:
        return _with(one, others, "warned", f"{others}; {EQUALS}: {shown(found.pages, SHOWN)}")
    return _with(one, others, "warned", f"{others}; {DIFFER}: {shown(found.documents, SHOWN)}")


def _with(one: Audit, remade: str, outcome: Outcome, found: str = "", why: str = "") -> Audit:
    check = Check(NUMBER, NAME, outcome, found, ALLOWED, "a rule of this project", why)
    return replace(one, checks=(*one.checks, check), remade=remade)
