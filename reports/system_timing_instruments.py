"""Describe the system, the timing, the instruments and the surroundings as text and pairs, for any format of report."""

import shlex
from collections.abc import Collection
from typing import Any

from msgspec import to_builtins

from reports.format import NOT_STATED, flatten, say, si, signed
from rig.analysis.result.quantity import Component, FigureKey, Quantity
from rig.analysis.result.result import ClockSummary, Result
from rig.recording.events import Start
from rig.recording.records import Algorithm, DeviceRecord, MeterRecord
from rig.terminal import clean
from rig.types import Accuracy, ClockInfo, Rail

Pairs = list[tuple[str, str]]

UNSTATED_ACCURACY = "instrument uncertainty not stated"


OF_SYSTEM = ("Description", "Mode", "Phases")
OF_ALGORITHM = ("Network", "Algorithm", "Solver", "Model", "Tuning", "Task", "Workload")
OF_TIMING = ("Scenario", "Inferences timed in a trial")
"""The titles of the pairs that a section shows first."""


def led(pairs: Pairs, titles: Collection[str]) -> dict[str, Pairs]:
    """Return the pairs with these titles, which a section shows first, and the rest, which is folded away."""
    return {"first": [p for p in pairs if p[0] in titles], "rest": [p for p in pairs if p[0] not in titles]}


# ---- the system and what it ran -----------------------------------------------------------


def architecture(device: DeviceRecord) -> Pairs:
    """Return the system under test, as its driver declared it."""
    stamps = "spans are on a pin" if device.spans_on_pin else "spans are stamped by the host"
    pairs = [
        ("System", say(device.name)), ("Mode", say(device.mode)), ("Description", say(device.description)),
        ("Device clock", _clock_text(device.clock) if device.clock else f"none; {stamps}"),
        ("Phases", say(device.phases)), ("Largest batch", say(device.max_batch)),
        ("On-board meter", say(device.onboard_meter or "none")), ("Versions", say(device.versions)),
        ("Artifacts (digest)", say(device.artifacts)),
    ]  # fmt: skip
    details = {k: v for k, v in device.details.items() if k not in Algorithm.__struct_fields__}
    return pairs + [(_words(key), text) for key, text in flatten(details) if key]


def algorithm(start: Start) -> Pairs:
    """Return the algorithm and its data, as the device's driver and the workload declare them."""
    workload = start.workload
    own = start.device.algorithm
    stated: dict[str, Any] = {"model": own.outline, "tuning": own.tuned}
    stated = {key: None for key, said in stated.items() if not said} | to_builtins(own)
    rest = ({"samples": workload.samples} if workload.samples else {}) | workload.details
    benchmark = [] if workload.benchmark is None else [("Benchmark", say(workload.benchmark.name))]
    return [
        *((_words(key), text) for key, text in flatten(stated)),
        *_baselines(start),
        *benchmark,
        ("Task", say(workload.task)),
        ("Workload", f"{say(workload.name)}, version {say(workload.version)}"),
        ("Workload digest (SHA-256)", say(workload.digest_sha256)),
        *((f"Workload: {_words(key)}", text) for key, text in flatten(rest) if key),
    ]


def _baselines(start: Start) -> Pairs:
    """Return the software versions of the benchmark's published baselines beside those of this device."""
    benchmark, ours = start.workload.benchmark, start.device.versions
    named = {} if benchmark is None else benchmark.baselines
    used = {name: clean(ours.get(name, "not used")) for name in named}
    return [
        (f"Version of {clean(name)}", f"{used[name]}; the published baseline used {clean(theirs)}")
        for name, theirs in named.items()
    ]


# ---- how it was timed, and by which instruments ------------------------------------------------------------------


def clock_row(c: ClockSummary) -> tuple[str, ...]:
    """Return clock, method, sigma, how fast it runs, brackets, and methods considered."""
    considered = "; ".join(f"{clean(m)}: {si(s, 's', 2)}" for m, s in c.considered.items())
    fast = Quantity(1e6 / (1.0 + c.rate_error) - 1e6, "ppm", (Component("rate", 1e6 * c.rate_sigma),))
    return (clean(c.clock), clean(c.method), si(c.sigma_s, "s", 2), signed(fast), str(c.brackets), considered or "—")


def timing(result: Result) -> Pairs:
    """Return what was timed and how: scenario, purpose, clocks and rules."""
    start, timed = result.start, result.quantities.get(FigureKey("execution_time_s"))
    scenario = start.scenario
    pairs = [
        ("Scenario", say(scenario.name)),
        ("Purpose of the run", say(start.purpose)),
        ("Configuration of the system", say(start.configuration)),
        ("Recorded clocks", "; ".join(map(_clock_text, start.clocks)) or NOT_STATED),
        ("Inferences timed in a trial", say(timed and timed.n)),
    ]
    amortised = {} if scenario.amortise_s is None else {"amortise_s": scenario.amortise_s}
    chosen = {k: v for k, v in (amortised | scenario.options).items() if v is not None}
    pairs += [(f"Scenario: {_words(k)}", v) for k, v in flatten(chosen) if k]
    ours = {} if start.rules is None else to_builtins(start.rules)
    asked = {k: v for k, v in ours.items() if k != "sources" and v not in (None, False, [])}
    return pairs + [(f"Rule: {_words(k)}", v) for k, v in flatten(asked) if k]


def meters(start: Start) -> list[dict[str, Any]]:
    """Return what each instrument is, what it measures, and what it leaves out."""
    found = []
    for meter in start.meters:
        c = meter.calibration
        certificate = "" if c is None else f"{c.certificate}, {c.date}" if c.date else c.certificate
        known = {"Serial number": meter.serial_number, "Firmware": meter.firmware, "Calibration": certificate}
        pairs = [
            ("Mode", say(meter.mode)),
            ("Description", say(meter.description)),
            ("Clock", _clock_text(meter.clock) if meter.clock else NOT_STATED),
            ("Versions", say(meter.versions)),
            *((title, say(text)) for title, text in known.items() if text),
            *((_words(k), v) for k, v in flatten(meter.details) if k),
        ]
        rails = [_rail_row(rail) for rail in meter.rails]
        omitted = [clean(o) for o in meter.omitted]
        found.append({"name": say(meter.name), "facts": pairs, "rails": rails, "omitted": omitted})
    return found


PINS = {
    "level": "high during each span",
    "stamp": "a falling edge at begin and end of each span",
    "toggle": "changes at begin and end of each span",
}


def _rail_row(rail: Rail) -> tuple[str, ...]:
    rate = rail.rate_hz
    if rail.kind == "edges":
        use = PINS.get(str(rail.pin), "what it marks is not stated")
        lag = f", within {si(rail.pin_lag_s, 's')}" if rail.pin_lag_s else ""
        sampled = f"sampled at {si(rate, 'Hz')}, every {si(1.0 / rate, 's')}" if rate > 0 else "stamped to a tick"
        return (say(rail.name), f"logic input: {use}{lag}", sampled, "-", "-", "no supply")
    conversion, tau = rail.conversion, rail.filter_tau_s
    at = f" at {conversion.supply_v:g} V" if conversion.supply_v is not None else ""
    at = f" times the volts of {clean(conversion.supply_rail)}" if conversion.supply_rail else at
    return (
        say(rail.name),
        f"{say(rail.kind)}, {conversion.unit}{at}",
        f"{si(rate, 'Hz')}, every {si(1.0 / rate, 's')}" if rate > 0 else "irregular",
        si(rail.aperture_s, "s"),
        f"RC, {si(tau, 's')}" if tau > 0 else "none declared",
        _accuracy(rail.accuracy, conversion.unit),
    )


def _accuracy(accuracy: Accuracy | None, unit: str) -> str:
    if accuracy is None:
        return UNSTATED_ACCURACY
    linear = "not stated" if accuracy.linearity is None else f"± {si(accuracy.linearity, unit)}"
    limits = f"± ({100.0 * accuracy.of_reading:.3g} % of reading + {si(accuracy.offset, unit)}), linearity {linear}"
    return f"{limits}, {clean(accuracy.source)}" if accuracy.source else limits


def _clock_text(clock: ClockInfo) -> str:
    return f"{say(clock.name)} at {si(clock.tick_hz, 'Hz', 6)}"


# ---- where it ran -------------------------------------------------------------------------


def environment(start: Start) -> Pairs:
    """Return the command and the surroundings of the recording."""
    pairs = []
    if start.ambient_temperature_c is not None:
        pairs.append(("Ambient temperature", f"{start.ambient_temperature_c:g} °C"))
    pairs.append(("Command", clean(shlex.join(start.argv) or NOT_STATED)))
    ran = {} if start.environment is None else to_builtins(start.environment)
    files = ran.pop("local_code", {})
    pairs += [(_words(k), v) for k, v in flatten(ran) if k]
    return pairs + [(f"Local code {clean(path)} (SHA-256)", digest) for path, digest in files.items()]


def occasion(start: Start) -> Pairs:
    """Return when, with which instruments, by whom and where the recording was made, for the head of a report."""
    instruments = [" ".join(filter(None, (m.name, m.serial_number))) for m in start.meters]
    what = "Recorded (UTC)" if start.imported is None else "Imported (UTC)"
    return [
        (what, say(start.created_utc.replace("T", " ").removesuffix("+00:00"))),
        ("Device", say(start.device.name)),
        ("Instrument", say(", ".join(instruments) or "none")),
        ("Operator", say(start.operator)),
        ("Lab", say(start.lab)),
    ]


def simulated_parts(start: Start) -> list[str]:
    """Return the names of parts that declared themselves as simulators, each name once."""
    parts: list[DeviceRecord | MeterRecord] = [start.device, *start.meters]
    return list(dict.fromkeys(say(part.name) for part in parts if part.mode == "simulator"))


def _words(key: str) -> str:
    words = clean(key).replace("_", " ")
    return words[:1].upper() + words[1:]
