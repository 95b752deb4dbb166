"""What is audited: a run, a session or a submission, opened without trust in any of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from reports.audit import schema
from reports.audit.figures import Figures, Plain, accuracy, execution_times, issues, service, solving, spans, together
from reports.audit.files import clean, inside, parse_json, read_bytes, read_json, refuse
from reports.audit.hashes import (
    MANIFEST,
    SESSION,
    SUBMISSION,
    Ledger,
    check_manifest,
    check_run,
    check_session,
    read_session,
)  # fmt: skip
from reports.audit.power import RailPower, power
from reports.audit.predictions import predictions
from reports.audit.reading import Run, read_run
from reports.audit.rules import Rule
from rig.errors import StoreError

RESULTS = "derived/results.json"
RESULTS_BYTES = 64 << 20


@dataclass
class Part:
    """A session or a lone run: its runs, and what of it could not be read."""

    name: str
    folder: Path
    runs: list[Run]
    unread: list[str]
    bound: bool
    """Whether it is a session."""
    plain: dict[str, Figures] = field(default_factory=dict)
    """The plain figures of each run, by the name of its folder."""
    rails: dict[str, dict[str, RailPower]] = field(default_factory=dict)
    rules: list[Rule] = field(default_factory=list)
    refused: dict[str, str] = field(default_factory=dict)
    """Why the plain power of a run could not be found."""

    @property
    def searched(self) -> bool:
        """Whether it is a search for a limit, whose runs are no trials of each other."""
        return any(run.purpose == "probe" for run in self.runs)


@dataclass
class Subject:
    """What one path holds."""

    kind: str
    path: Path
    name: str
    parts: list[Part]
    ledger: Ledger
    sealed: bool
    submission: dict[str, Any] | None = None
    faults: list[str] = field(default_factory=list)
    """What of ``submission.json`` is not of its format."""
    root: str | None = None
    """The hash that stands for all of it: of the manifest, of ``session.json``, or of ``events.jsonl``."""

    @property
    def runs(self) -> list[tuple[str, Run]]:
        """Every run with the name by which the audit calls it."""
        found = []
        for part in self.parts:
            for run in part.runs:
                own = run.path.name if part.bound else part.name
                found.append((own if len(self.parts) == 1 else f"{part.name}/{own}" if part.bound else own, run))
        return found


def open_subject(path: Path) -> Subject:
    """Open a path. Raises ``StoreError`` if it holds no recording; faults inside are collected."""
    ledger = Ledger()
    if (path / SUBMISSION).is_file() or (path / MANIFEST).is_file():
        return _submission(path, ledger)
    part, sealed = _part(path, path.resolve().name, ledger)
    if part.unread and not part.runs:
        refuse(path.name or path, part.unread[0])
    root = ledger.of(path / (SESSION if part.bound else "events.jsonl"))
    return Subject("session" if part.bound else "run", path, clean(part.name), [part], ledger, sealed, root=root)


def _submission(path: Path, ledger: Ledger) -> Subject:
    root = check_manifest(path, ledger) if (path / MANIFEST).is_file() else None
    if root is None:
        ledger.faults.append(f"there is no {MANIFEST}")
    document = parse_json(read_bytes(path / SUBMISSION), SUBMISSION)
    faults, unusable = schema.faults(document, "submission"), _shape(document)
    if unusable:
        faults, document = faults or unusable, {"configurations": [], "about": {}}
    names = [name for one in document["configurations"] for name in one["sessions"]]
    parts, sealed = [], True
    for name in dict.fromkeys(names):
        part, own_seal = _part(inside(path, name), name.rpartition("/")[2], ledger)
        parts.append(part)
        sealed = sealed and own_seal
    faults += [f"{name} stands in more than one configuration" for name in set(names) if names.count(name) > 1]
    held = {f"sessions/{p.name}" for p in (path / "sessions").iterdir()} if (path / "sessions").is_dir() else set()
    faults += [clean(f"{name} belongs to no configuration") for name in sorted(held - set(names))]
    return Subject("submission", path, clean(path.resolve().name), parts, ledger, sealed, document, faults, root)


def _shape(document: Any) -> list[str]:
    """What the auditor itself needs of ``submission.json`` and does not find."""
    try:
        document["about"].items()
        for one in document["configurations"]:
            keys = ("name", "scenario", "workload", "rules", "device", "class")
            texts = [*(one[key] for key in keys), *one["sessions"]]
            claims = [(c["value"], c["trials"], c.get("low"), c.get("high")) for c in one["claims"].values()]
            if not all(isinstance(t, str) for t in texts) or any(len(c[1]) != len(one["sessions"]) for c in claims):
                return [f"the configuration {one['name']!r} does not hold texts, or not one trial for each session"]
            [float(v) for c in claims for v in (c[0], *c[1], c[2] or 0.0, c[3] or 0.0)]
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        return [clean(f"submission.json does not hold {error}")]
    return []


def _part(folder: Path, name: str, ledger: Ledger) -> tuple[Part, bool]:
    """Read a session or run, and verify its hashes; whether all of it is sealed."""
    bound = (folder / SESSION).is_file()
    if folder.is_symlink() or not (bound or (folder / "events.jsonl").is_file()):
        return Part(clean(name), folder, [], ["holds neither session.json nor events.jsonl"], False), False
    document = read_session(folder, ledger) if bound else None
    places = [inside(folder, run["path"]) for run in document["runs"]] if document else [folder]
    part, sealed = Part(clean(name), folder, [], [], bound), True
    for place in places:
        try:
            run = read_run(place)
            sealed = check_run(run, ledger) and sealed
            part.runs.append(run)
        except StoreError as error:
            part.unread.append(clean(f"{place.name}: {error.message}"))
    if document and not part.unread:
        check_session(document, part.runs, ledger)
    return part, sealed


def compute(part: Part) -> None:
    """Find the plain figures of each run of a part."""
    for run in part.runs:
        name = run.path.name
        part.plain[name] = execution_times(run) | service(run) | accuracy(run) | predictions(run) | solving(run)[0]
        try:
            figures, part.rails[name] = power(run)
            part.plain[name] |= _energies(part.plain[name] | figures, run)
        except StoreError as error:
            part.refused[name] = clean(error.message)


def _energies(figures: Figures, run: Run) -> Figures:
    """Power, and what follows from it and from times of the same run."""
    if "active_power_w" not in figures:
        return figures
    if run.start["workload"].get("task") == "qubo-mis":
        figures["runtime_power_w"] = figures["active_power_w"]
    figures |= energy(figures)
    for name in run_rails(figures):
        figures |= energy(figures, name)
    if "average_power_w" in figures and "duration_s" in figures:
        average, duration = figures["average_power_w"], figures["duration_s"].value
        done = sum(not i.warmup and i.answered_s is not None for i in issues(run))
        parts = (average.value * duration / done, average.bound * duration / done)
        figures["average_energy_per_sample_j"] = Plain(*parts, "average power x duration over samples", average.why)
    phases = set(spans(run).of(~spans(run).warmup).phase)
    if len(phases) == 1:
        own = (
            "idle_power_w",
            "active_power_w",
            "dynamic_power_w",
            "energy_per_inference_j",
            "dynamic_energy_per_inference_j",
        )
        figures |= {f"phase.{next(iter(phases))}.{key}": figures[key] for key in own if key in figures}
    return figures


ENERGY = {"energy_per_inference_j": "active_power_w", "dynamic_energy_per_inference_j": "dynamic_power_w"}


def run_rails(figures: Figures) -> list[str]:
    """What stands before the active power of each rail, and of the mean over the spans, such as ``rail.core.``."""
    return [key.removesuffix("active_power_w") for key in figures if key.endswith(".active_power_w")]


def energy(figures: Figures, prefix: str = "") -> Figures:
    """Energy of an inference: power times execution time."""
    found: Figures = {}
    time = figures.get("execution_time_s")
    for key, source in ((f"{prefix}{key}", f"{prefix}{source}") for key, source in ENERGY.items()):
        watts = figures.get(source)
        if watts is not None and time is not None:
            bound = abs(watts.value) * time.bound + watts.bound * time.value
            found[key] = Plain(watts.value * time.value, bound, f"{watts.method}, x execution time", watts.why)
    return found


def of_session(part: Part) -> Figures:
    """The plain figures of a session: quality of accuracy runs, times of performance runs, power of power runs."""
    if not part.bound and len(part.runs) == 1:
        return part.plain[part.runs[0].path.name]
    by_purpose: dict[str, list[Run]] = {}
    for run in part.runs:
        by_purpose.setdefault(run.purpose, []).append(run)

    def runs_for(*purposes: str) -> Sequence[Figures]:
        chosen = next((by_purpose[p] for p in purposes if p in by_purpose), [])
        return [part.plain[run.path.name] for run in chosen]

    def only(figures: Sequence[Figures], wanted: bool, *words: str) -> list[Figures]:
        return [
            {k: v for k, v in one.items() if any(w in k.rpartition(".")[2] for w in words) == wanted} for one in figures
        ]

    watts, scores = ("power", "energy", "_j"), ("accuracy", "smape", "r2")
    right = together(only(runs_for("accuracy", "performance", "all"), True, *scores))
    timed = together(only(runs_for("performance", "all", "power"), False, *scores, *watts))
    if any(run.start["scenario"].get("amortise_s") for run in by_purpose.get("power", [])):
        own = [{k: v for k, v in one.items() if "execution_time" in k} for one in runs_for("power")]
        timed |= together(own)
    powered = together(only(runs_for("power", "all"), True, *watts))
    powered = {key: value for key, value in powered.items() if not key.startswith("phase.")}
    found = right | timed | powered
    for prefix in ("", *run_rails(found)):
        found |= energy(found, prefix)
    return found


@dataclass(frozen=True)
class Claim:
    """One figure as claimed. ``half_width`` is that of its interval, 0 if none is stated."""

    value: float
    unit: str
    half_width: float


def claims_in(folder: Path) -> dict[str, Claim]:
    """The claims of ``derived/results.json`` in a run or session; none without this file. Raises ``StoreError``."""
    place = inside(folder, RESULTS)
    if not place.is_file():
        return {}
    document = (
        read_json(place) if place.stat().st_size <= 1 << 24 else parse_json(read_bytes(place, RESULTS_BYTES), RESULTS)
    )
    found = {}
    for key, one in (document.get("quantities") or {}).items():
        if (
            not isinstance(one, dict)
            or isinstance(one.get("value"), bool)
            or not isinstance(one.get("value"), (int, float))
        ):
            continue
        ends = one.get("interval_95") or [one["value"]]
        if all(isinstance(end, (int, float)) for end in ends):
            half = max(abs(end - one["value"]) for end in ends)
            found[clean(key)] = Claim(float(one["value"]), clean(one.get("unit", "")), float(half))
    return found
