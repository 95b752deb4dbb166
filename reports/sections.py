"""The system and how it was measured, as text and pairs without markup, the same for every format."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from reports.format import NOT_STATED, clean, flatten, say, si
from reports.names import parts_of
from rig.analysis.figure_key import FigureKey
from rig.analysis.result import ClockSummary, Result

Pairs = list[tuple[str, str]]
Json = Mapping[str, Any]

UNSTATED_ACCURACY = "instrument uncertainty not stated"
_ALGORITHM_KEYS = ("algorithm", "model", "encoder", "network", "tuning", "training", "solver", "parameters")


class Stage(NamedTuple):
    """One box of the workflow diagram; ``kind`` is untimed, idle, timed or silent."""

    title: str
    kind: str
    lines: tuple[str, ...]


# ---- the system and what it ran -----------------------------------------------------------


def architecture(device: Json) -> Pairs:
    """The system under test, from what its driver declared."""
    clock = device.get("clock")
    pairs = [
        ("System", say(device.get("name"))),
        ("Mode", say(device.get("mode"))),
        ("Description", say(device.get("description"))),
        ("Device clock", _clock_text(clock) if clock else "none; spans are stamped by the host"),
        ("Phases", say(device.get("phases"))),
        ("Largest batch", say(device.get("max_batch"))),
        ("On-board meter", say(device.get("onboard_meter") or "none")),
        ("Versions", say(device.get("versions"))),
        ("Artifacts (digest)", say(device.get("artifacts"))),
    ]
    details = {k: v for k, v in _mapping(device.get("details")).items() if k not in _ALGORITHM_KEYS}
    return pairs + [(_words(key), text) for key, text in flatten(details) if key]


def algorithm(start: Json) -> Pairs:
    """The algorithm and the data it ran on, from the device's details and the workload."""
    details = _mapping(_mapping(start.get("device")).get("details"))
    workload = _named(start.get("workload"))
    stated = {key: details.get(key) for key in _ALGORITHM_KEYS if details.get(key) is not None}
    stated.setdefault("model", None)
    stated.setdefault("tuning", None)
    known = ("name", "task", "version", "digest_sha256", "details")
    rest = {k: v for k, v in workload.items() if k not in known} | _mapping(workload.get("details"))
    return [
        *((_words(key), text) for key, text in flatten(stated)),
        ("Task", say(workload.get("task"))),
        ("Workload", f"{say(workload.get('name'))}, version {say(workload.get('version'))}"),
        ("Workload digest (SHA-256)", say(workload.get("digest_sha256"))),
        *((f"Workload: {_words(key)}", text) for key, text in flatten(rest) if key),
    ]


def workflow(result: Result) -> list[Stage]:
    """The stages from data to score, timed phases in the order in which they first happened."""
    windows = {p: w for p, w in result.series.phase_windows_s.items() if len(w)}
    timed = sorted(windows, key=lambda p: float(windows[p][0][0]))
    declared = [p for p in _mapping(result.start.get("device")).get("phases") or [] if p not in windows]
    stages = [
        Stage("Data initialisation", "untimed", ("on the host", "not timed")),
        Stage("Staging", "untimed", ("samples into device memory", "not timed")),
    ]
    idle = result.series.idle_windows_s
    if len(idle):
        lines = (f"{len(idle)} windows", f"{si(float((idle[:, 1] - idle[:, 0]).sum()), 's', 3)} in all")
        stages.append(Stage("Idle", "idle", (*lines, _figure(result, FigureKey("idle_power_w")))))
    stages += [Stage(_words(p), "timed", _phase_lines(result, p, len(windows[p]))) for p in timed]
    stages += [Stage(_words(str(p)), "silent", ("declared", "none recorded")) for p in declared]
    return [*stages, Stage("Score", "untimed", ("on the host", "not timed"))]


def _phase_lines(result: Result, phase: str, count: int) -> tuple[str, ...]:
    keys = (FigureKey("execution_time_s", phase), FigureKey("active_power_w", phase))
    return (f"{count} timed spans", *(line for line in (_figure(result, key) for key in keys) if line))


def _figure(result: Result, key: FigureKey) -> str:
    q = result.quantities.get(key)
    if q is None:
        return ""
    value, half, unit = parts_of(key, q)
    return f"{value}{' ± ' + half if half else ''} {unit}".strip()


# ---- how it was measured ------------------------------------------------------------------


def clock_row(c: ClockSummary) -> tuple[str, ...]:
    """Clock, method, sigma, rate error, brackets, methods considered."""
    considered = "; ".join(f"{clean(m)}: {si(s, 's', 2)}" for m, s in c.considered.items())
    rate = f"{c.rate_error * 1e6:+.3g} ± {c.rate_sigma * 1e6:.2g} ppm"
    return (clean(c.clock), clean(c.method), si(c.sigma_s, "s", 2), rate, str(c.brackets), considered or "—")


def timing(result: Result) -> Pairs:
    """Where time comes from, besides the table of clocks."""
    start = result.start
    scenario = _named(start.get("scenario"))
    clocks = [_clock_text(c) for c in start.get("clocks") or []]
    pairs = [
        ("Scenario", say(scenario.get("name"))),
        ("Purpose of the run", say(start.get("purpose", "all"))),
        ("Recorded clocks", "; ".join(clocks) or NOT_STATED),
        ("Inferences timed", str(len(result.series.execution_times_s))),
    ]
    options = {k: v for k, v in scenario.items() if k not in ("name", "options")} | _mapping(scenario.get("options"))
    chosen = {k: v for k, v in options.items() if v is not None}
    pairs += [(f"Scenario: {_words(k)}", v) for k, v in flatten(chosen) if k]
    asked = {k: v for k, v in _named(start.get("rules")).items() if v is not None}
    return pairs + [(f"Rule: {_words(k)}", v) for k, v in flatten(asked) if k]


def meters(start: Json) -> list[dict[str, Any]]:
    """Each instrument: what it is, what it covers, and what it leaves out."""
    found = []
    for meter in start.get("meters") or []:
        pairs = [
            ("Mode", say(meter.get("mode"))),
            ("Description", say(meter.get("description"))),
            ("Clock", _clock_text(meter["clock"]) if meter.get("clock") else NOT_STATED),
            ("Versions", say(meter.get("versions"))),
            *((_words(k), v) for k, v in flatten(_mapping(meter.get("details"))) if k),
        ]
        rails = [_rail_row(rail) for rail in meter.get("rails") or []]
        omitted = [clean(o) for o in meter.get("omitted") or []]
        found.append({"name": say(meter.get("name")), "facts": pairs, "rails": rails, "omitted": omitted})
    return found


PINS = {
    "level": "high during each span",
    "stamp": "a falling edge at begin and end of each span",
    "toggle": "changes at begin and end of each span",
}


def _rail_row(rail: Json) -> tuple[str, ...]:
    rate = float(rail.get("rate_hz") or 0.0)
    if rail.get("kind") == "edges":
        use = PINS.get(str(rail.get("pin")), "what it marks is not stated")
        lag = f", within {si(float(rail.get('pin_lag_s') or 0.0), 's')}" if rail.get("pin_lag_s") else ""
        looked = f"looked at {si(rate, 'Hz')}, every {si(1.0 / rate, 's')}" if rate > 0 else "stamped to a tick"
        return (say(rail.get("name")), f"logic input: {use}{lag}", looked, "-", "-", "no supply")
    conversion = _mapping(rail.get("conversion"))
    unit = str(conversion.get("unit", "W"))
    supply = conversion.get("supply_v")
    at = f" at {supply:g} V" if supply is not None else ""
    at = f" times the volts of {clean(conversion['supply_rail'])}" if conversion.get("supply_rail") else at
    tau = float(rail.get("filter_tau_s") or 0.0)
    return (
        say(rail.get("name")),
        f"{say(rail.get('kind', 'mean'))}, {unit}{at}",
        f"{si(rate, 'Hz')}, every {si(1.0 / rate, 's')}" if rate > 0 else "irregular",
        si(rail.get("aperture_s"), "s"),
        f"RC, {si(tau, 's')}" if tau > 0 else "none declared",
        _accuracy(rail.get("accuracy"), unit),
    )


def _accuracy(accuracy: Json | None, unit: str) -> str:
    if accuracy is None:
        return UNSTATED_ACCURACY
    share = 100.0 * float(accuracy.get("of_reading") or 0.0)
    limits = f"± ({share:.3g} % of reading + {si(float(accuracy.get('offset') or 0.0), unit)})"
    return f"{limits}, {clean(accuracy['source'])}" if accuracy.get("source") else limits


def _clock_text(clock: Json) -> str:
    rate = clock.get("tick_hz")
    return f"{say(clock.get('name'))} at {si(rate, 'Hz', 6)}"


# ---- where it ran -------------------------------------------------------------------------


def environment(start: Json) -> Pairs:
    """When, with what command and in which surroundings the recording was made."""
    argv = start.get("argv")
    command = shlex.join(map(str, argv)) if isinstance(argv, (list, tuple)) and argv else NOT_STATED
    pairs = [(_words(k), say(start[k])) for k in ("lab", "operator") if start.get(k)]
    pairs += [("Recorded (UTC)", say(start.get("created_utc"))), ("Command", clean(command))]
    pairs += [(_words(k), say(start[k])) for k in ("versions", "commit", "dirty") if k in start]
    return pairs + [(_words(k), v) for k, v in flatten(_named(start.get("environment"))) if k]


def simulated_parts(start: Json) -> list[str]:
    """The names of what declared itself a simulator."""
    parts: Iterable[Json] = [_mapping(start.get("device")), *(start.get("meters") or [])]
    return [say(part.get("name")) for part in parts if part.get("mode") == "simulator"]


def _mapping(value: Any) -> dict[str, Any]:
    return dict(value) if isinstance(value, Mapping) else {}


def _named(value: Any) -> dict[str, Any]:
    return dict(value) if isinstance(value, Mapping) else {"name": value} if value else {}


def _words(key: str) -> str:
    words = clean(key).replace("_", " ")
    return words[:1].upper() + words[1:]
