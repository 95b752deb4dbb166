"""The subject of an audit: a run, a session or a submission; nothing in it is trusted."""

import hashlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from reports.audit.figures import Figures, Plain, answers, execution_times, service, spans, together
from reports.audit.folder import hashes, reading
from reports.audit.folder.hashes import EVENTS, MANIFEST, SESSION, SUBMISSION, Ledger
from reports.audit.judged import Rule
from reports.audit.power.estimate import RailPower, power
from reports.audit.scores import accuracy, is_solving, predictions, solving
from rig.errors import IntegrityError, RigError
from rig.recording.disk.files import Folder
from rig.recording.layout import is_recorded
from rig.recording.session_json import REQUEST, open_session
from rig.recording.submission import Submission

UNENDED, UNENDED_REMEDY = f"{SESSION} binds no run: none has ended", "Its author can use `rig measure --resume`"
BROKEN_OFF = "runs: it was broken off, or is still recorded"
RESULTS, RESULTS_BYTES = "derived/results.json", 64 << 20
POWERS = ("idle_power_w", "active_power_w", "dynamic_power_w")
ENERGY = {"energy_per_inference_j": "active_power_w", "dynamic_energy_per_inference_j": "dynamic_power_w"}


@dataclass
class Part:
    """A session or a lone run: its runs, and the parts that could not be read."""

    name: str
    folder: Path
    runs: list[reading.Run]
    unread: list[str]
    bound: bool
    """Whether this is a session."""
    plain: dict[str, Figures] = field(default_factory=dict)
    """The plain figures of each run, by the name of its folder."""
    rails: dict[str, dict[str, RailPower]] = field(default_factory=dict)
    rules: list[Rule] = field(default_factory=list)
    refused: dict[str, str] = field(default_factory=dict)
    """Why the plain power of a run could not be computed."""

    @property
    def asked(self) -> list[reading.Run]:
        """Return the runs that must keep the rules: all except the probes of a session, which search for a limit."""
        return [run for run in self.runs if not (self.bound and run.purpose == "probe")]


@dataclass
class Subject:
    """The content of one path."""

    kind: str
    path: Path
    name: str
    parts: list[Part]
    ledger: Ledger
    submission: dict[str, Any] | None = None
    faults: list[str] = field(default_factory=list)
    """The parts of ``submission.json`` that do not fit its format."""
    root: str | None = None
    """The hash that covers everything: of the manifest, of ``session.json``, or of ``events.jsonl``."""

    @property
    def runs(self) -> list[tuple[str, reading.Run]]:
        """Return each run with its name in the audit."""
        alone = len(self.parts) == 1
        named = ((part, run.path.name if part.bound else part.name, run) for part in self.parts for run in part.runs)
        return [(own if alone or not part.bound else f"{part.name}/{own}", run) for part, own, run in named]

    @property
    def configurations(self) -> list[tuple[dict[str, Any], list[Part]]]:
        """Return each row of a submission with its sessions; empty if this is no submission."""
        parts = {part.folder: part for part in self.parts}
        rows = (self.submission or {}).get("configurations", [])
        return [(row, [parts[self.path / name] for name in row["sessions"]]) for row in rows]

    @property
    def beside(self) -> tuple[str, ...]:
        """Return the files in folders ``derived``, which no hash covers, except the claims of a session or run."""
        held = (name for name in reading.walk(self.path) if "derived" in name.split("/")[:-1])
        return tuple(reading.clean(name) for name in held if self.submission is not None or not name.endswith(RESULTS))


def open_subject(path: Path) -> Subject:
    """Open a path. Raises ``StoreError`` if there is no recording in it; faults inside are collected."""
    ledger = Ledger()
    if is_recorded(path, SUBMISSION) or is_recorded(path, MANIFEST):
        return _submission(path, ledger)
    part, root = _part(path, path.resolve().name, ledger)
    if part.unread and not part.runs:
        given = UNENDED_REMEDY if part.unread == [UNENDED] else reading.REMEDY
        known = part.bound or is_recorded(path, EVENTS)
        reading.refuse(part.unread[0], "", path.name, given if known else reading.WHAT_TO_NAME)
    return Subject("session" if part.bound else "run", path, reading.clean(part.name), [part], ledger, root=root)


def _submission(path: Path, ledger: Ledger) -> Subject:
    root = hashes.check_manifest(path, ledger) if is_recorded(path, MANIFEST) else None
    if root is None:
        ledger.faults.append(f"there is no {MANIFEST}")
    content = reading.read_bytes(path / SUBMISSION)
    ledger.used(SUBMISSION, hashlib.sha256(content).hexdigest())
    document, faults = _described(reading.parse_json(content, SUBMISSION))
    names = [name for one in document["configurations"] for name in one["sessions"]]
    parts = []
    for name in dict.fromkeys(names):
        part, digest = _part(reading.inside(path, name), name.rpartition("/")[2], ledger)
        if digest is not None:  # None if the part was refused, which is a fault of its own
            ledger.used(f"{name}/{SESSION if part.bound else EVENTS}", digest)
        parts.append(part)
    faults += [f"{name} belongs to more than one configuration" for name in set(names) if names.count(name) > 1]
    held = {f"sessions/{p.name}" for p in (path / "sessions").iterdir()} if (path / "sessions").is_dir() else set()
    faults += [reading.clean(f"{name} belongs to no configuration") for name in sorted(held - set(names))]
    return Subject("submission", path, reading.clean(path.resolve().name), parts, ledger, document, faults, root)


def _described(document: Any) -> tuple[dict[str, Any], list[str]]:
    """Return ``submission.json``'s content (without rows if their format has faults) and the faults."""
    faults = []
    for told in (document, document | {"about": {}} if isinstance(document, dict) else document):
        try:
            rows = msgspec.convert(told, Submission).configurations
        except (msgspec.ValidationError, RecursionError) as error:
            what, _, where = str(error).partition(" - at ")
            faults.append(reading.clean(f"{where.strip('`').removeprefix('$.')}: {what}"))
            continue
        if all(len(claim.trials) == len(one.sessions) for one in rows for claim in one.claims.values()):
            return document, faults
        return {"configurations": [], "about": {}}, ["submission.json does not hold one trial for each session"]
    return {"configurations": [], "about": {}}, faults[:1]


def _part(folder: Path, name: str, ledger: Ledger) -> tuple[Part, str | None]:
    """Read a session or run and verify its hashes. Return the part, and the hash that covers it."""
    part = Part(reading.clean(name), folder, [], [], is_recorded(folder, SESSION))
    try:
        session = open_session(folder) if part.bound else None
        bound: list[Path | Folder] = [folder]
        if session is not None:
            bound = [session.folder.sub(place.name) for place, _ in session.runs]
            part.unread += [UNENDED] if not bound else []
            ledger.unsealed += [part.name] * (not session.sealed)
    except RigError as error:
        _note(error, part, ledger)
        return part, None
    for place in bound:
        try:
            part.runs.append(run := reading.read_run(place))
        except RigError as error:
            _note(error, part, ledger)
            continue
        ledger.unsealed += [reading.clean(run.path.name)] * (not run.whole.sealed)
    whole = (part.runs[0].start.get("session") or {}).get("of") if part.bound and part.runs else None
    if isinstance(whole, int) and whole > len(bound):
        end = BROKEN_OFF if is_recorded(folder, REQUEST) else "runs"
        ledger.faults.append(f"{SESSION} binds {len(bound)} of {whole} {end}")
    if session is not None:
        return part, session.digest
    return part, part.runs[0].whole.digest if part.runs else None


def _note(error: RigError, part: Part, ledger: Ledger) -> None:
    """Record an error: a fault if content contradicts a hash, else an unread part."""
    told = reading.clean(error.message.replace(f"{part.folder.parent}/", ""))
    (ledger.faults if isinstance(error, IntegrityError) else part.unread).append(told)


def compute(part: Part) -> None:
    """Compute the plain figures of each run of a part."""
    for run in part.runs:
        name = run.path.name
        part.plain[name] = execution_times(run) | service(run) | accuracy(run) | predictions(run) | solving(run)[0]
        try:
            figures, part.rails[name] = power(run)
            part.plain[name] |= _energies(part.plain[name] | figures, run)
        except RigError as error:
            part.refused[name] = reading.clean(error.message)


def _energies(figures: Figures, run: reading.Run) -> Figures:
    """Add the figures that follow from power and times of the same run."""
    if "active_power_w" not in figures:
        return figures
    if is_solving(run):
        figures["runtime_power_w"] = figures["active_power_w"]
    figures |= energies(figures)
    if (average := figures.get("average_power_w")) is not None and "duration_s" in figures:
        each_s = figures["duration_s"].value / answers(run)
        joules = (average.value * each_s, average.bound * each_s)
        figures["average_energy_per_sample_j"] = Plain(*joules, "average power x duration over samples", average.why)
    stamped = spans(run)
    phases = set(stamped.phase[~stamped.warmup])
    for name in phases if len(phases) == 1 else ():
        figures |= {f"phase.{name}.{key}": figures[key] for key in (*POWERS, *ENERGY) if key in figures}
    return figures


def energies(figures: Figures) -> Figures:
    """Compute energy per inference as power times busy time: for all rails, for each rail, and by the mean over spans.

    Without a busy time, the execution time is the busy time.
    """
    found, time = Figures(), figures.get("busy_time_per_inference_s") or figures.get("execution_time_s")
    prefixes = ["", *(key.removesuffix("active_power_w") for key in figures if key.endswith(".active_power_w"))]
    for key, source in ((prefix + key, prefix + source) for prefix in prefixes for key, source in ENERGY.items()):
        if time is not None and (watts := figures.get(source)) is not None:
            bound = abs(watts.value) * time.bound + watts.bound * time.value
            how, ends = f"{watts.method}, x execution time", watts.ends * time.value
            found[key] = Plain(watts.value * time.value, bound, how, watts.why, ends)
    return found


def of_session(part: Part) -> Figures:
    """Return the figures of a session: quality from accuracy runs, times from performance, power from power runs."""
    if not part.bound and len(part.runs) == 1:
        return part.plain[part.runs[0].path.name]

    def mean(purposes: str, words: tuple[str, ...], wanted: bool = True) -> Figures:
        """Average figures over runs of one purpose: those with one of the words in their names, or the others."""
        chosen = next((p for p in purposes.split() if any(run.purpose == p for run in part.runs)), None)
        each = [part.plain[run.path.name] for run in part.runs if run.purpose == chosen]
        return together(
            {k: v for k, v in one.items() if any(w in k.rpartition(".")[2] for w in words) == wanted} for one in each
        )

    watts, scores = ("power", "energy", "_j"), ("accuracy", "smape", "r2")
    found = mean("accuracy performance all", scores) | mean("performance all power", (*scores, *watts), False)
    if any(run.start["scenario"].get("amortise_s") for run in part.runs if run.purpose == "power"):
        found |= mean("power", ("execution_time", "busy_time"))
    found |= {key: value for key, value in mean("power all", watts).items() if not key.startswith("phase.")}
    return found | energies(found)


@dataclass(frozen=True)
class Claim:
    """One claimed figure. ``half_width`` is half the width of its interval, 0 if none is stated."""

    value: float
    unit: str
    half_width: float


def claims_in(folder: Path) -> dict[str, Claim]:
    """Return the claims in ``derived/results.json`` of a run or session; empty without the file. Refuses a bad file."""
    place = reading.inside(folder, RESULTS)
    if not place.is_file():
        return {}
    found = {}
    results = reading.parse_json(reading.read_bytes(place, RESULTS_BYTES), RESULTS)
    for key, one in (results.get("quantities") or {}).items():
        value = one.get("value")
        ends = one.get("interval_95") or [value]
        if all(isinstance(end, (int, float)) and not isinstance(end, bool) for end in (value, *ends)):
            half = max(abs(end - value) for end in ends)
            found[reading.clean(key)] = Claim(float(value), reading.clean(one.get("unit", "")), float(half))
    return found


def claims_of_trial(row: dict[str, Any], number: int) -> dict[str, Claim]:
    """Return the claims about one session; half widths are those of means, times the root of the session count."""
    found = {}
    for key, one in row["claims"].items():
        low, high = one.get("low"), one.get("high")
        half = max(high - one["value"], one["value"] - low) if None not in (low, high) else 0.0
        half *= len(row["sessions"]) ** 0.5
        found[reading.clean(key)] = Claim(float(one["trials"][number]), reading.clean(one.get("unit", "")), half)
    return found
