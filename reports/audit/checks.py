"""The list of checks, each with its source; each says what was found against what is allowed."""

from __future__ import annotations

import csv
import io
import json
import math
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import date
from typing import Literal

import numpy as np

from reports.audit.clocks import line
from reports.audit.compare import Compared
from reports.audit.figures import issues, spans
from reports.audit.files import clean, read_bytes, walk
from reports.audit.power import idle_windows, power_rails
from reports.audit.qubo import drawn, problem, problem_names
from reports.audit.reading import Run, column, traces
from reports.audit.rules import Rule, modes_of, values_of
from reports.audit.subject import Subject
from rig.errors import StoreError

Outcome = Literal["passed", "failed", "not applicable"]
SHOWN = 6
LOST_MOST, OVER_MOST = 0.05, 0.01
"""The largest shares of readings that may be missing or at the end of the range."""
CLAIM_MOST = 0.05
"""How far a claim may lie from the mean of its trials (NeuroBench, rules.md of system_benchmarks)."""
ASLEEP = 0.03
"""By so much of dynamic power may idle windows lie below the gaps between spans."""
CALIBRATED_DAYS = 730
FILES = ("submission.toml", "results.csv", "report.html", "report.md", "ro-crate-metadata.json", "MANIFEST.sha256")
SECTIONS = ("architecture", "algorithm", "workflow", "timing", "power", "results")
BLANKS = ("todo", "tbd", "fixme", "lorem ipsum", "placeholder")


@dataclass(frozen=True)
class Check:
    """One check as it came out. ``why`` says what is missing where it does not apply."""

    number: int
    name: str
    outcome: Outcome
    found: str
    allowed: str
    source: str
    why: str = ""


@dataclass(frozen=True)
class Anchor:
    """What ties the recording to someone: a good signature of an allowed signer, or a published root hash."""

    signer: str = ""
    fingerprint: str = ""
    published: bool = False
    faults: tuple[str, ...] = ()
    asked: bool = False
    """Whether a file of signers or a root hash was given."""

    @property
    def words(self) -> str:
        """In one line."""
        if self.faults:
            return "; ".join(self.faults)
        by = [f"signed by {self.signer} ({self.fingerprint})"] * bool(self.signer) + [
            "root hash as published"
        ] * self.published
        return "; ".join(by) or "self-consistent, not anchored"


@dataclass(frozen=True)
class Evidence:
    """What the checks look at."""

    subject: Subject
    rules: tuple[Rule, ...]
    compared: tuple[Compared, ...]
    anchor: Anchor
    quick: bool
    claims: dict[str, dict[str, float]] = field(default_factory=dict)
    """The values that are claimed, by what they are about."""


class NotApplicable(Exception):
    """A check cannot be answered; the message says what is missing."""


Verdict = tuple[list[str], str, str]
"""Faults, what was found if there are none, and what is allowed."""
Checker = Callable[[Evidence], Verdict]
CHECKS: list[tuple[int, str, str, Checker]] = []


def check(number: int, name: str, source: str) -> Callable[[Checker], Checker]:
    """Put a function into the list of checks."""

    def put(function: Checker) -> Checker:
        CHECKS.append((number, name, source, function))
        return function

    return put


def run_checks(evidence: Evidence) -> list[Check]:
    """Every check in the order of its number."""
    done = []
    for number, name, source, function in sorted(CHECKS, key=lambda c: c[0]):
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


def _each(evidence: Evidence, faults_of: Callable[[Run], list[str] | Iterator[str]]) -> list[str]:
    return [f"{name}: {fault}" for name, run in evidence.subject.runs for fault in faults_of(run)]


def _by_rule(evidence: Evidence, *begins: str) -> tuple[list[str], str, str]:
    """The rules of these names, as one check. Raises ``NotApplicable`` if the set has none of them."""
    mine = [r for r in evidence.rules if r.rule.startswith(begins)]
    if not mine:
        raise NotApplicable("no rule of the recorded set asks for it")
    faults = [f"{r.run + ': ' if r.run else ''}{r.rule} {r.found}, allowed {r.allowed}" for r in mine if not r.ok]
    least = next((r for r in mine if r.found), mine[0])
    return faults, f"{len(mine)} times as allowed, such as {least.rule}: {least.found}", least.allowed


def _compared(evidence: Evidence, *words: str) -> Verdict:
    """The claims whose names hold one of the words, beside the plain figures."""
    if evidence.quick:
        raise NotApplicable("left out by --quick")
    mine = [c for c in evidence.compared if not words or any(w in c.key for w in words)]
    if not mine:
        raise NotApplicable("no such figure is claimed, or the auditor has no method of its own for it")
    faults = [
        f"{c.scope}: {c.key} is {c.claimed:.6g}, derived {c.plain:.6g} +- {c.allowed:.2g} {c.unit}"
        for c in mine
        if not c.ok
    ]
    far = max(mine, key=lambda c: abs(c.claimed - c.plain) / c.allowed if c.allowed else 0.0)
    found = f"{len(mine)} figures agree; nearest to its limit is {far.key}"
    return faults, found, "claims within the bounds of the table of figures"


# ---- the folder ----------------------------------------------------------------------------


@check(1, "layout: required files, none empty", "MLPerf inference#1356")
def _layout(e: Evidence) -> Verdict:
    faults = list(e.subject.faults)
    for part in e.subject.parts:
        faults += [f"{part.name}: {text}" for text in part.unread]
    if e.subject.submission is not None:
        held = {name: place.stat().st_size for name, place in walk(e.subject.path)}
        faults += [f"{name} is missing or empty" for name in FILES if not held.get(name)]
    for name, run in e.subject.runs:
        faults += [
            f"{name}: {table}.arrows has no row" for table in ("samples", "replies") if not run.tables[table].num_rows
        ]
    return faults, f"{len(e.subject.runs)} runs", "every file of the layout, with content"


@check(2, "SHA-256 of every file, and the chain of lines and runs", "run-directory.md, 'What is verified'")
def _hashes(e: Evidence) -> Verdict:
    seals = "sealed" if e.subject.sealed or e.subject.root else "without a seal of the last line"
    return (
        e.subject.ledger.faults,
        f"{e.subject.ledger.files} files as hashed, {seals}",
        "no file differs from its hash",
    )


@check(3, "signature by an allowed signer, or a published root hash", "ssh-keygen(1), 'ALLOWED SIGNERS'")
def _signature(e: Evidence) -> Verdict:
    if e.anchor.faults:
        return list(e.anchor.faults), "", "a good signature of an allowed signer, or the published hash"
    if not e.anchor.asked:
        raise NotApplicable(f"{e.anchor.words}; give --signers FILE or --root HASH")
    return [], e.anchor.words, "a good signature of an allowed signer, or the published hash"


@check(4, "rule set by name and revision", "MLPerf inference#1331")
def _rule_set(e: Evidence) -> Verdict:
    faults = _each(e, lambda run: values_of(run)[1])
    names = {clean((run.start.get("rules") or {}).get("name")) for _, run in e.subject.runs}
    if e.subject.submission is not None:
        claimed = {one["rules"] for one in e.subject.submission["configurations"]}
        faults += [f"the submission names the rules {n!r}, its runs do not" for n in sorted(claimed - names) if n]
    if names == {"None"}:
        raise NotApplicable("the recording names no set of rules")
    return faults, ", ".join(sorted(names)), "a revision that the auditor holds, unchanged"


@check(5, "one session: same device, firmware, model and configuration", "MLPerf inference#473")
def _one_device(e: Evidence) -> Verdict:
    faults = []
    for part in e.subject.parts:
        for key in ("name", "mode", "versions", "artifacts"):
            values = {json.dumps(run.start["device"].get(key), sort_keys=True) for run in part.runs}
            faults += [f"{part.name}: {key} of the device differs between runs"] if len(values) > 1 else []
        names = {str(run.start.get("configuration", "")) for run in part.runs}
        faults += [f"{part.name}: runs of {len(names)} configurations"] if len(names) > 1 else []
    return faults, clean({run.start["device"].get("name") for _, run in e.subject.runs}), "one device in one state"


@check(6, "system description complete", "MLPerf submission rules; NeuroBench report.md")
def _description(e: Evidence) -> Verdict:
    def faults_of(run: Run) -> Iterator[str]:
        device = run.start["device"]
        yield from (f"the device declares no {key}" for key in ("name", "description") if not device.get(key))
        for meter in run.start["meters"]:
            yield from (f"a meter declares no {key}" for key in ("name", "description") if not meter.get(key))

    faults = list(dict.fromkeys(fault.partition(": ")[2] for fault in _each(e, faults_of)))
    about = (e.subject.submission or {}).get("about") or {}
    if e.subject.submission is not None:
        faults += [f"about: {key} is empty" for key, text in about.items() if key != "notes" and not str(text).strip()]
    return faults, "declared", "a description of device, meters, software and availability"


@check(7, "the six sections of the report, without blanks", "NeuroBench report.md")
def _report(e: Evidence) -> Verdict:
    if e.subject.submission is None:
        raise NotApplicable("only a submission holds a report")
    text = read_bytes(e.subject.path / "report.md", 64 << 20).decode("utf-8", "replace").lower()
    headings = [row.lstrip("# ") for row in text.splitlines() if row.startswith("#")]
    faults = [f"no section about {word}" for word in SECTIONS if not any(word in h for h in headings)]
    words = set(text.replace(":", " ").replace("*", " ").split())
    faults += [f"the report holds {word!r}" for word in BLANKS if word in words]
    return faults, f"{len(SECTIONS)} sections", "architecture, algorithm, workflow, timing, power, results"


# ---- the workload --------------------------------------------------------------------------


@check(8, "workload: digest, number of samples, each issued as often", "MLPerf inference rules")
def _workload(e: Evidence) -> Verdict:
    def faults_of(run: Run) -> Iterator[str]:
        ids = column(run.tables["samples"], "id")
        declared = run.start["workload"].get("samples")
        if len(set(ids)) != len(ids):
            yield "a sample stands twice"
        unknown = {i.sample for i in issues(run)} - set(ids)
        if unknown:
            yield f"{len(unknown)} issued samples are not recorded"
        streamed = run.start["scenario"].get("name") in ("server", "real-time")
        whole = run.stop is not None and not run.stop.get("error") and not _other_data(run)
        if declared and whole and not streamed and declared != len(set(ids)):
            yield f"{len(set(ids))} samples, declared {declared}"
        counts = Counter(i.sample for i in issues(run) if not i.warmup)
        if counts and whole and not streamed and max(counts.values()) > min(counts.values()):
            yield f"samples were issued {min(counts.values())} to {max(counts.values())} times"

    faults = _each(e, faults_of)
    for part in e.subject.parts if not any(p.searched for p in e.subject.parts) else []:
        digests = {str(run.start["workload"].get("digest_sha256")) for run in part.runs if not _other_data(run)}
        faults += [f"{part.name}: runs of {len(digests)} data sets"] if len(digests) > 1 else []
    return (
        faults,
        f"{sum(r.tables['samples'].num_rows for _, r in e.subject.runs)} samples",
        "one data set, as declared",
    )


def _other_data(run: Run) -> bool:
    """Whether a run plays other samples than its session on purpose: longer sequences, or repeated ones."""
    return bool(run.start["scenario"].get("amortise_s")) or run.purpose in ("compliance", "probe")


@check(9, "test split unused in tuning; seeds of the right set", "NeuroBench N22, N48, N49")
def _tuning_seeds(e: Evidence) -> Verdict:
    def faults_of(run: Run) -> Iterator[str]:
        details = run.start["workload"].get("details") or {}
        kinds = set((details.get("seed_kinds") or {}).values()) | {details.get("seed_kind")}
        official = (run.start.get("rules") or {}).get("submittable")
        if official and "tuning" in kinds:
            yield "tuning seeds in an evaluation"
        seeds = set(map(str, column(run.tables["samples"], "seed"))) - {"None"}
        told = run.start["device"].get("algorithm") or {}
        tuned = told.get("tuning") if isinstance(told.get("tuning"), dict) else told.get("training")
        used = tuned.get("seeds") if isinstance(tuned, dict) else None
        if isinstance(used, list) and (both := seeds & set(map(str, used))):
            yield f"seeds {', '.join(sorted(both)[:5])} were used in tuning"

    faults = _each(e, faults_of)
    about = ((e.subject.submission or {}).get("about") or {}).get("split")
    if e.subject.submission is not None and not str(about or "").strip():
        faults.append("the submission does not say how test data were kept out of tuning")
    return (
        faults,
        "no tuning seed, and no seed that the device declares for its tuning",
        "evaluation seeds and the test split only",
    )


@check(10, "problems and samples are those of their seeds", "NeuroBench N46 to N58")
def _seeds(e: Evidence) -> Verdict:
    counted = [0]

    def faults_of(run: Run) -> Iterator[str]:
        details = run.start["workload"].get("details") or {}
        seeds = dict(zip(column(run.tables["samples"], "id"), column(run.tables["samples"], "seed"), strict=True))
        if run.start["workload"].get("task") != "qubo-mis":
            return
        densities = details.get("densities") or []
        for name in sorted(problem_names(run)):
            nodes, edges = problem(run, name)
            drawings = (
                [drawn(nodes, float(d), int(seeds[name])) for d in densities] if seeds.get(name) is not None else []
            )
            held = {(int(min(u, v)), int(max(u, v))) for u, v in edges}
            if drawings and None not in drawings:
                counted[0] += 1
                if held not in drawings:
                    yield f"{name} is not the graph of its seed"

    faults = [] if e.quick else _each(e, faults_of)
    if not faults and not counted[0]:
        raise NotApplicable("no problem that the auditor can draw again from its seed is stored")
    return faults, f"{counted[0]} graphs drawn again", "edge for edge"


@check(11, "minimum duration", "MLPerf inference rules")
def _duration(e: Evidence) -> Verdict:
    return _by_rule(e, "duration")


@check(12, "minimum number of queries", "MLPerf inference rules")
def _queries(e: Evidence) -> Verdict:
    return _by_rule(e, "queries", "runs for")


@check(
    13,
    "latency percentiles and early stopping derived again, from the due time",
    "MLPerf inference, early_stopping.adoc",
)
def _latency(e: Evidence) -> Verdict:
    try:
        faults, found, allowed = _compared(
            e, "latency_", "execution_time", "duration_s", "throughput", "in_time", "dropped"
        )
    except NotApplicable:
        return _by_rule(e, "p90", "p99", "frames answered")
    named = [r for r in e.rules if r.rule.startswith(("p90", "p99", "frames answered")) and not r.ok]
    return faults + [f"{r.run}: {r.rule} {r.found}, allowed {r.allowed}" for r in named], found, allowed


@check(14, "clean end: no error, no missing reply, no gap of the host", "MLPerf inference, submission checker")
def _clean_end(e: Evidence) -> Verdict:
    def faults_of(run: Run) -> Iterator[str]:
        if run.stop is None:
            yield "no stop line"
        elif run.stop.get("error") is not None:
            yield f"ended with {clean((run.stop['error'] or {}).get('error'))}"
        lost = sum(i.issued_s is not None and i.answered_s is None and i.output is None for i in issues(run))
        if lost and run.start.get("imported") is None:
            yield f"{lost} samples without an answer"
        if run.events["gap"]:
            yield f"the host stood still {len(run.events['gap'])} times"

    return _each(e, faults_of), "every run to its end", "to the end, each sample answered"


@check(15, "accuracy and costs derived again from recorded outputs", "MLPerf inference; NeuroBench N45")
def _accuracy(e: Evidence) -> Verdict:
    faults, found, allowed = _compared(e, "accuracy", "gap_", "cost_")
    wrong = [r for r in e.rules if r.rule.startswith(("solves whose costs", "samples answered otherwise")) and not r.ok]
    return faults + [f"{r.run}: {r.rule} {r.found}" for r in wrong], found, allowed


@check(16, "accuracy from the system, not from a simulator", "NeuroBench N30")
def _from_system(e: Evidence) -> Verdict:
    marked = e.subject.submission is None or all(
        one["class"] != "measured" for one in e.subject.submission["configurations"]
    )
    official = any((run.start.get("rules") or {}).get("hardware_only") for _, run in e.subject.runs)
    if marked and not official:
        raise NotApplicable("nothing here claims to be measured on hardware under rules that ask for it")
    faults = _each(e, lambda run: [f"{', '.join(sorted(modes_of(run)))}"] if modes_of(run) != {"hardware"} else [])
    return faults, "hardware", "hardware in every run"


@check(17, "trials within 5 % of the claim", "NeuroBench rules.md, R3")
def _trials(e: Evidence) -> Verdict:
    faults = [
        f"{r.rule} {r.found}, allowed {r.allowed}"
        for r in e.rules
        if "of each trial from the mean" in r.rule and not r.ok
    ]
    counted = sum("of each trial from the mean" in r.rule for r in e.rules)
    for one in (e.subject.submission or {}).get("configurations", []):
        for key, claim in one["claims"].items():
            mean = sum(claim["trials"]) / len(claim["trials"])
            apart = abs(claim["value"] - mean)
            counted += 1
            if apart > CLAIM_MOST * abs(mean) or not math.isfinite(apart):
                faults.append(
                    f"{one['name']}: {key} is {apart / abs(mean) if mean else math.inf:.1%} off the mean of its trials"
                )
            elif apart > 1e-9 * abs(mean):
                faults.append(f"{one['name']}: {key} is not the mean of its trials")
    if not counted:
        raise NotApplicable("neither trials nor claims")
    return faults, f"{counted} times", "each within 5 % of the mean; a claim is the mean"


# ---- the measurement -----------------------------------------------------------------------


def _metered(e: Evidence) -> list[tuple[str, Run]]:
    found = [(name, run) for name, run in e.subject.runs if power_rails(run)]
    if not found:
        raise NotApplicable("no power was recorded")
    return found


@check(18, "idle measured, configured, not asleep, long enough", "NeuroBench N36, N37")
def _idle(e: Evidence) -> Verdict:
    _metered(e)
    faults = [
        f"{r.run}: {r.rule} {r.found}, allowed {r.allowed}"
        for r in e.rules
        if r.rule == "shortest idle window" and not r.ok
    ]
    for name, run in _metered(e):
        if not run.events["idle"]:
            faults.append(f"{name}: no idle window")
    for part in e.subject.parts:
        for own, rails in part.rails.items():
            gap = sum(rail.gap_w or 0.0 for rail in rails.values())
            dynamic = sum(rail.area_w for rail in rails.values())
            if any(rail.apart for rail in rails.values()) and gap > ASLEEP * abs(dynamic):
                faults.append(f"{part.name}/{own}: asleep in idle, {gap:.3g} W below the gaps between spans")
    return (
        faults,
        "idle windows as ready as the gaps between spans" if not e.quick else "long enough",
        "at least as long as the rule; not below the gaps",
    )


@check(19, "spans inside the run, marks and spans inside the trace, windows apart", "MLPerf Power, check.py")
def _windows(e: Evidence) -> Verdict:
    def faults_of(run: Run) -> Iterator[str]:
        idle = idle_windows(run)
        idle = idle[np.argsort(idle[:, 0])]
        if np.any(idle[1:, 0] < idle[:-1, 1]) or np.any(idle[:, 1] < idle[:, 0]):
            yield "idle windows overlap"
        stamped = spans(run)
        if len(stamped.on) and len(idle):
            clock = run.start["device"].get("clock")
            slack = line(run, clock["name"] if clock else None).bound_s + 1e-6
            first = np.searchsorted(np.sort(stamped.off), idle[:, 0] + slack, "right")
            after = np.searchsorted(np.sort(stamped.on), idle[:, 1] - slack, "left")
            if np.any(after > first):
                yield "a span lies in an idle window"

    faults = _each(e, faults_of)
    faults += [f"{r.run}: {r.rule} {r.found}" for r in e.rules if r.rule.startswith("spans that") and not r.ok]
    for part in e.subject.parts:
        for own, rails in part.rails.items():
            run = next(r for r in part.runs if r.path.name == own)
            ended = run.stop is not None and not run.stop.get("error")
            stamped = spans(run)
            for name, rail in rails.items():
                margin = rail.clock_bound_s + 2 * rail.facts.period_s
                if ended and (
                    stamped.on.min() < rail.facts.first_s - margin or stamped.off.max() > rail.facts.last_s + margin
                ):
                    faults.append(f"{part.name}/{own}: spans lie outside the trace of {name}")
    return faults, "inside", "spans between issue and answer, inside the trace, outside of idle windows"


@check(20, "clocks: residuals within their brackets", "MLPerf Power power-dev#262, inference#1338, #1496")
def _clocks(e: Evidence) -> Verdict:
    worst = (0.0, "")

    def faults_of(run: Run) -> Iterator[str]:
        nonlocal worst
        for name, rows in run.brackets.items():
            clock = line(run, name)
            t0 = int(run.start["t0_ns"])
            at = clock.seconds(rows[:, 1])
            slack = clock.bound_s + clock.rate_bound * float(np.ptp(at)) + 1e-6
            out = np.maximum((rows[:, 0] - t0) * 1e-9 - at, at - (rows[:, 2] - t0) * 1e-9)
            worst = max(worst, (float(out.max()) if len(out) else 0.0, f"{run.path.name}, clock {name}"))
            if np.any(out > slack):
                yield f"the clock {name!r} leaves its brackets by {out.max():.3g} s, allowed {slack:.3g} s"

    faults = _each(e, faults_of)
    if not any(run.brackets for _, run in e.subject.runs):
        raise NotApplicable("every stamp is of the host's clock")
    return (
        faults,
        f"at most {max(worst[0], 0.0):.2g} s outside of a bracket ({worst[1]})",
        "half of the quickest round trip, and the rate",
    )


@check(21, "readings: rate and aperture against spans; missing and clipped ones", "MLPerf Power; MLPerf Tiny 1.2")
def _readings(e: Evidence) -> Verdict:
    _metered(e)
    if e.quick:
        raise NotApplicable("left out by --quick")
    faults, least = [], math.inf
    for part in e.subject.parts:
        faults += [f"{part.name}/{own}: {why}" for own, why in part.refused.items()]
        for own, rails in part.rails.items():
            for name, rail in rails.items():
                facts = rail.facts
                least = min(least, rail.readings_per_span)
                share = rail.unseen
                over = facts.overload / max(1, facts.count)
                where = f"{part.name}/{own}, rail {name}"
                faults += [f"{where}: {share:.1%} of the readings are missing"] if share > LOST_MOST else []
                faults += (
                    [f"{where}: {over:.1%} of the readings are at the end of the range"] if over > OVER_MOST else []
                )
    return (
        faults,
        f"{least:.3g} readings in a span, or more",
        f"at most {LOST_MOST:.0%} missing and {OVER_MOST:.0%} clipped",
    )


@check(22, "range fixed during the run; ranging and measured run agree", "MLPerf Power power-dev#311")
def _range(e: Evidence) -> Verdict:
    raise NotApplicable("a recording holds no range of the instrument, and no ranging run; ask the submitter")


@check(23, "instrument known, calibrated in time; ambient temperature stated", "SPEC PTDaemon headings")
def _instrument(e: Evidence) -> Verdict:
    faults, without = [], 0
    for name, run in _metered(e):
        for meter in run.start["meters"]:
            own = meter.get("calibration") or {}
            try:
                age = (
                    date.fromisoformat(str(run.start.get("created_utc"))[:10])
                    - date.fromisoformat(str(own.get("date"))[:10])
                ).days
            except ValueError:
                without += 1
                continue
            if not 0 <= age <= CALIBRATED_DAYS:
                faults.append(f"{name}: {clean(meter.get('name'))} was calibrated {age} days before the run")
    if not faults and without:
        raise NotApplicable("no date of a calibration certificate is recorded")
    return faults, "calibrated", f"at most {CALIBRATED_DAYS} days before the run"


@check(24, "rails as declared; power derived again by separate code", "NeuroBench N8, N41")
def _rails(e: Evidence) -> Verdict:
    def faults_of(run: Run) -> Iterator[str]:
        declared = {clean(rail.get("name")) for meter in run.start["meters"] for rail in meter.get("rails") or []}
        recorded = {clean(name) for name in traces(run)}
        if missing := sorted(declared - recorded):
            yield f"no trace of the declared rails {', '.join(missing)}"
        if declared and (extra := sorted(recorded - declared)):
            yield f"traces of undeclared rails {', '.join(extra)}"

    _metered(e)
    faults = _each(e, faults_of)
    for part in e.subject.parts:
        sets = {tuple(sorted(traces(run))) for run in part.runs if run.purpose == "power"}
        faults += [f"{part.name}: power runs have different rails"] if len(sets) > 1 else []
    try:
        more, found, allowed = _compared(e, "power_w")
    except NotApplicable as missing:
        if faults:
            return faults, "", "every declared rail"
        raise NotApplicable(f"every declared rail has its trace; {missing}") from None
    return faults + more, found, allowed


@check(25, "energy is power times time, dynamic is active minus idle", "NeuroBench N39, N40; SPEC Power")
def _arithmetic(e: Evidence) -> Verdict:
    faults, counted = [], 0
    for scope, values in e.claims.items():
        for prefix in ("", "literal."):
            get = {
                k: values.get(f"{prefix}{k}") for k in ("active_power_w", "dynamic_power_w", "energy_per_inference_j")
            }
            idle, time = values.get("idle_power_w"), values.get("execution_time_s")
            active, dynamic, joules = get.values()
            if None not in (active, dynamic, idle):
                counted += 1
                if abs(active - dynamic - idle) > 1e-6 * abs(active):  # type: ignore[operator,arg-type]
                    faults.append(f"{scope}: {prefix}dynamic_power_w is not active less idle power")
            if None not in (active, joules, time):
                counted += 1
                if abs(joules - active * time) > 1e-6 * abs(joules):  # type: ignore[operator,arg-type]
                    faults.append(f"{scope}: {prefix}energy_per_inference_j is not power times time")
    if not counted:
        raise NotApplicable("no power and energy are claimed together")
    return faults, f"{counted} sums and products", "equal within one in a million"


@check(26, "model and firmware digests recorded", "MLPerf inference#473; MLPerf Tiny 1.2")
def _digests(e: Evidence) -> Verdict:
    bare = [
        name
        for name, run in e.subject.runs
        if not run.start["device"].get("artifacts") and not run.start["device"].get("versions")
    ]
    if bare:
        raise NotApplicable(f"the device of {bare[0]} declares no artifact and no version")
    return [], "declared in every run", "a version or digest of what the device runs"


@check(27, "measuring software unmodified", "SPEC run rules headings")
def _software(e: Evidence) -> Verdict:
    told = [(name, run.start.get("environment") or {}) for name, run in e.subject.runs]
    if any(one.get("dirty") is None for _, one in told):
        raise NotApplicable("a run does not say whether its software was changed")
    commits = {str(one.get("commit")) for _, one in told}
    faults = [f"{name}: the source had uncommitted changes" for name, one in told if one["dirty"]]
    return faults, f"commit {', '.join(sorted(commits))}", "a clean commit"


@check(28, "no answers from a cache; repeated samples declared", "MLPerf inference TEST01, TEST04")
def _cache(e: Evidence) -> Verdict:
    def faults_of(run: Run) -> Iterator[str]:
        options = run.start["scenario"].get("options") or {}
        most = max((n or 1 for n in column(run.tables["replies"], "executions")), default=1)
        if most > 1 and not options.get("repeat") and not options.get("window_s") and run.start.get("imported") is None:
            yield f"a span holds {most} executions, and no repeat is declared"

    faults = _each(e, faults_of)
    faults += [f"{r.rule}: {r.found}" for r in e.rules if r.rule.startswith("samples answered otherwise") and not r.ok]
    faster = []
    for part in e.subject.parts:
        times = {run.purpose: part.plain.get(run.path.name, {}).get("execution_time_s") for run in part.runs}
        plain, again = times.get("performance"), times.get("compliance")
        if plain and again and again.value < 0.9 * plain.value:
            faster.append(f"{part.name}: repeated samples take {again.value / plain.value:.0%} of the time of others")
    return faults + faster, "repeats as declared", "no faster on samples that were asked before"


@check(29, "estimated, simulated and measured apart", "NeuroBench P1; shared rule of this project")
def _classes(e: Evidence) -> Verdict:
    if e.subject.submission is None:
        raise NotApplicable("only a submission has classes")
    by_folder = {part.folder: part for part in e.subject.parts}
    faults = []
    for one in e.subject.submission["configurations"]:
        runs = [run for name in one["sessions"] for run in by_folder[e.subject.path / name].runs]
        modes = set().union(*(modes_of(run) for run in runs)) if runs else set()
        imported = any(run.start.get("imported") for run in runs)
        right = (
            {"imported"}
            if imported
            else {"measured", "estimated"}
            if modes == {"hardware"}
            else {"simulated", "estimated"}
        )
        if one["class"] not in right:
            faults.append(f"{one['name']} is called {one['class']}, and its runs are {', '.join(sorted(modes))}")
    return faults, "each by its own class", "measured only where device and meters are hardware"


@check(30, "rows of the leaderboard are the claims", "MLPerf inference#1342")
def _rows(e: Evidence) -> Verdict:
    if e.subject.submission is None:
        raise NotApplicable("only a submission has rows")
    text = read_bytes(e.subject.path / "results.csv").decode("utf-8", "replace")
    rows = list(csv.DictReader(io.StringIO(text), restkey="", restval=""))
    wanted = {one["name"]: one for one in e.subject.submission["configurations"]}
    faults = (
        [] if [row.get("name") for row in rows] == list(wanted) else ["the rows are not the configurations, in order"]
    )
    counted = 0
    for row in rows:
        one = wanted.get(str(row.get("name")), {})
        for key, shown in row.items():
            claim = one.get("claims", {}).get(key.removesuffix(".low").removesuffix(".high"))
            part = "low" if key.endswith(".low") else "high" if key.endswith(".high") else "value"
            expected = (
                claim.get(part)
                if claim is not None
                else one.get(key)
                if key in one
                else {"trials": len(one.get("sessions", []))}.get(key)
            )
            if expected is None and (not shown or key == "runs"):
                continue
            counted += 1
            if shown != ("" if expected is None else repr(expected) if isinstance(expected, float) else str(expected)):
                faults.append(f"{row.get('name')}: {key} is {shown}, not {expected}")
    return faults, f"{counted} cells", "equal to submission.json, digit for digit"
