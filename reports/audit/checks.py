"""The list of checks in the order of their numbers; each says what was found against what is allowed."""

from __future__ import annotations

from reports.audit import folder_checks, power_checks, work_checks
from reports.audit.evidence import Asked, Check, Evidence, NotApplicable
from reports.audit.files import clean
from rig.errors import StoreError

SHOWN = 6
_HELD = [one for module in (folder_checks, power_checks, work_checks) for one in vars(module).values()]
CHECKS = sorted((one for one in _HELD if isinstance(one, Asked)), key=lambda one: one.number)


def run_checks(evidence: Evidence) -> list[Check]:
    """Every check in the order of its number."""
    done = []
    for one in CHECKS:
        head = (one.number, one.name)
        try:
            faults, found, allowed = one.decide(evidence)
        except NotApplicable as missing:
            done.append(Check(*head, "not applicable", "", "", one.source, clean(missing)))
            continue
        except StoreError as error:
            faults, found, allowed = [error.message], "", "a recording that can be read"
        more = [f"and {len(faults) - SHOWN} more"] if len(faults) > SHOWN else []
        shown = "; ".join([*map(clean, faults[:SHOWN]), *more]) if faults else clean(found)
        done.append(Check(*head, "failed" if faults else "passed", shown, allowed, one.source))
    return done
