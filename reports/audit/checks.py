"""The list of checks, each with its source; each says what was found against what is allowed."""

from __future__ import annotations

from reports.audit import folder_checks, power_checks, work_checks
from reports.audit.evidence import Check, Checker, Evidence, NotApplicable
from reports.audit.files import clean
from rig.errors import StoreError

SHOWN = 6
CHECKS: tuple[tuple[int, str, str, Checker], ...] = (
    (1, "layout: required files, none empty", "MLPerf inference#1356", folder_checks.layout),
    (
        2,
        "SHA-256 of every file, and the chain of lines and runs",
        "run-directory.md, 'What is verified'",
        folder_checks.digests_fit,
    ),
    (
        3,
        "signature by an allowed signer, or a published root hash",
        "ssh-keygen(1), 'ALLOWED SIGNERS'",
        folder_checks.signature,
    ),
    (4, "rule set by name and revision", "MLPerf inference#1331", folder_checks.rule_set),
    (
        5,
        "one session: same device, firmware, model and configuration",
        "MLPerf inference#473",
        folder_checks.one_device,
    ),
    (6, "system description complete", "MLPerf submission rules; NeuroBench report.md", folder_checks.description),
    (7, "the six sections of the report, without blanks", "NeuroBench report.md", folder_checks.report),
    (8, "workload: digest, number of samples, each issued as often", "MLPerf inference rules", work_checks.workload),
    (9, "test split unused in tuning; seeds of the right set", "NeuroBench N22, N48, N49", work_checks.tuning_seeds),
    (10, "problems and samples are those of their seeds", "NeuroBench N46 to N58", work_checks.seeds),
    (11, "minimum duration", "MLPerf inference rules", work_checks.duration),
    (12, "minimum number of queries", "MLPerf inference rules", work_checks.queries),
    (
        13,
        "latency percentiles and early stopping derived again, from the due time",
        "MLPerf inference, early_stopping.adoc",
        work_checks.latency,
    ),
    (
        14,
        "clean end: no error, no missing reply, no gap of the host",
        "MLPerf inference, submission checker",
        work_checks.clean_end,
    ),
    (
        15,
        "accuracy and costs derived again from recorded outputs",
        "MLPerf inference; NeuroBench N45",
        work_checks.accuracy,
    ),
    (16, "accuracy from the system, not from a simulator", "NeuroBench N30", work_checks.from_system),
    (17, "trials within 5 % of the claim", "NeuroBench rules.md, R3", work_checks.trials),
    (18, "idle measured, configured, not asleep, long enough", "NeuroBench N36, N37", power_checks.idle),
    (
        19,
        "spans inside the run, marks and spans inside the trace, windows apart",
        "MLPerf Power, check.py",
        power_checks.window_places,
    ),
    (
        20,
        "clocks: residuals within their brackets",
        "MLPerf Power power-dev#262, inference#1338, #1496",
        power_checks.clocks,
    ),
    (
        21,
        "readings: rate and aperture against spans; missing and clipped ones",
        "MLPerf Power; MLPerf Tiny 1.2",
        power_checks.readings,
    ),
    (
        22,
        "range fixed during the run; ranging and measured run agree",
        "MLPerf Power power-dev#311",
        power_checks.ranging,
    ),
    (
        23,
        "instrument known, calibrated in time; ambient temperature stated",
        "SPEC PTDaemon headings",
        power_checks.instrument,
    ),
    (24, "rails as declared; power derived again by separate code", "NeuroBench N8, N41", power_checks.rails),
    (
        25,
        "energy is power times time, dynamic is active minus idle",
        "NeuroBench N39, N40; SPEC Power",
        power_checks.arithmetic,
    ),
    (26, "model and firmware digests recorded", "MLPerf inference#473; MLPerf Tiny 1.2", folder_checks.digests),
    (27, "measuring software unmodified", "SPEC run rules headings", folder_checks.software),
    (28, "no answers from a cache; repeated samples declared", "MLPerf inference TEST01, TEST04", work_checks.cache),
    (
        29,
        "estimated, simulated and measured apart",
        "NeuroBench P1; a rule of this project",
        folder_checks.classes,
    ),
    (30, "rows of the leaderboard are the claims", "MLPerf inference#1342", folder_checks.leaderboard_rows),
)
"""Number, name, source, and the function that decides."""


def run_checks(evidence: Evidence) -> list[Check]:
    """Every check in the order of its number."""
    done = []
    for number, name, source, function in CHECKS:
        try:
            faults, found, allowed = function(evidence)
        except NotApplicable as missing:
            done.append(Check(number, name, "not applicable", "", "", source, clean(missing)))
            continue
        except StoreError as error:
            faults, found, allowed = [error.message], "", "a recording that can be read"
        more = [f"and {len(faults) - SHOWN} more"] if len(faults) > SHOWN else []
        shown = "; ".join([*map(clean, faults[:SHOWN]), *more]) if faults else clean(found)
        done.append(Check(number, name, "failed" if faults else "passed", shown, allowed, source))
    return done
