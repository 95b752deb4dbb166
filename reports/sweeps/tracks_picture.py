"""Draw networks on devices: accuracy against energy and against time, and energy against operations."""

from collections.abc import Sequence, Set

from reports.format import prefix, title
from reports.pictures.colour_sheet import LIMIT, MUTED, WIDTH, Sheet, hue
from reports.sweeps.axes import ends_of, logarithmic, spread
from rig.analysis.result.figure_catalogue import entry_of
from rig.analysis.result.quantity import FigureKey
from rig.sweep.tracks import Track, Tracks, front

ACCURACY = FigureKey("accuracy")
COSTS = (FigureKey("energy_per_inference_j"), FigureKey("execution_time_s"))
_HEIGHT = 130.0
Key = list[tuple[str, str, int] | tuple[str, str, int, bool]]


def front_figure(found: Tracks) -> bytes | None:
    """Return SVG of accuracy against energy and against time; None without a point.

    A point is one network on one device. Each device has a colour, each network a shape. A point is hollow if
    simulated, and has a ring if it is on the front. A cost that no point has gets no panel.
    """
    points = [t for t in found.tracks if ACCURACY in t.figures and any(key in t.figures for key in COSTS)]
    if not points:
        return None
    sheet, best = Sheet("accuracy, %", 2.0 * WIDTH), front(found.tracks)
    for key in COSTS:
        if of := [t for t in points if key in t.figures]:
            _costs(sheet, of, key, found, best)
    networks = {t.network for t in points}
    keys = _colours(found, {t.device for t in points})
    keys += [(MUTED, short(n), k) for k, n in enumerate(found.networks) if len(networks) > 1 and n in networks]
    keys += [*_hollow(points), *([(LIMIT, "ring: on the front", 0, True)] if best else [])]
    sheet.key(keys)
    return sheet.svg({t.simulated for t in points})


def line_figure(found: Tracks) -> bytes | None:
    """Return SVG of an execution's dynamic energy against its operations, with each line that was fitted, or None."""
    points = {device: of for device, of in found.points.items() if len(of) > 1}
    if not points:
        return None
    every = [p for of in points.values() for p in of]
    factor, unit = prefix(max(abs(p.dynamic.value) for p in every), "J")
    joules = {p: ends_of(p.dynamic.value, *p.dynamic.interval(), factor) for p in every}
    sheet = Sheet(f"dynamic energy, last phase ({unit})", 2.0 * WIDTH)
    x = 0.0, 1.04 * max(p.operations for p in every)
    y = spread(min(0.0, *(low for _, low, _ in joules.values())), max(high for _, _, high in joules.values()))
    across, up = sheet.panel(x, y, _HEIGHT, "effective operations in an execution")
    shown = [t for t in found.tracks if t.device in points]
    hollow = {t.device for t in shown if t.simulated}
    for device, of in points.items():
        colour = hue(found.devices.index(device))
        line = found.lines[device]
        if line.per_operation is not None and line.per_execution is not None:
            last = max(p.operations for p in of)
            fit = [factor * (line.per_execution.value + line.per_operation.value * at) for at in (0.0, last)]
            sheet.line((across(0.0), across(last)), (up(fit[0]), up(fit[1])), colour, 1.1)
        for p in of:
            value, low, high = map(up, joules[p])
            sheet.point(across(p.operations), value, (low, high), colour, hollow=device in hollow)
    sheet.key([*_colours(found, set(points)), *_hollow(shown)])
    return sheet.svg({t.simulated for t in shown})


def _colours(found: Tracks, shown: Set[str]) -> Key:
    return [(hue(k), short(name), 0) for k, name in enumerate(found.devices) if name in shown]


def _hollow(shown: Sequence[Track]) -> Key:
    return [(MUTED, "hollow: SIMULATED", 0, True)] if any(t.simulated for t in shown) else []


def short(name: str) -> str:
    """Return the short name of a device or network: without its folder."""
    return name.rpartition("/")[2]


def _costs(sheet: Sheet, shown: Sequence[Track], key: FigureKey, found: Tracks, best: Sequence[Track]) -> None:
    factor, unit = prefix(max(t.figures[key].value for t in shown), entry_of(key).unit)
    x = [ends_of(q.value, *q.interval(), factor) for q in (t.figures[key] for t in shown)]
    y = [ends_of(q.value, *q.interval(), 100.0) for q in (t.figures[ACCURACY] for t in shown)]
    log = logarithmic([value for value, _, _ in x])
    least = min(value if log else low for value, low, _ in x)
    limits, shares = spread(least, max(map(max, x)), log), spread(min(map(min, y)), max(map(max, y)))
    across, up = sheet.panel(limits, shares, _HEIGHT, f"{title(key)} ({unit})", log)
    for t, (cost, *ends), (value, low, high) in zip(shown, x, y, strict=True):
        colour, at = hue(found.devices.index(t.device)), (across(cost), up(value))
        if t in best:
            sheet.mark(*at, LIMIT, hollow=True, radius=7.0)
        sheet.line((across(ends[0]), across(ends[1])), (at[1], at[1]), colour)
        sheet.point(*at, (up(low), up(high)), colour, found.networks.index(t.network), t.simulated)
