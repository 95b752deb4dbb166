"""Measure each network on every device with one workload, in a sweep with one grid per device.

The table has two tracks of figures for the same samples. The algorithm track has the network's accuracy and operations;
the system track has the time, power and energy of the device.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from rig.analysis.complexity.energy_line import EnergyLine, Point, line_of, point_of
from rig.analysis.result.figure_catalogue import entry_of
from rig.analysis.result.quantity import FigureKey, Figures, Quantity, from_json
from rig.errors import RigError, UsageError, refused
from rig.factories import options_of, takes
from rig.plugins import load
from rig.session.locks import Say
from rig.session.setup import plant_factory_of
from rig.sweep.grid import NONE, GridSpec, cells_of, from_texts
from rig.sweep.grid_checks import grids_for
from rig.sweep.row_of_cell import kept_row
from rig.sweep.sweep_folder import Frozen, State, error_of, frozen, is_sweep, state_of

ALGORITHM = tuple(map(FigureKey, (
    "accuracy", "footprint_bytes", "connection_sparsity", "activation_sparsity", "executions_per_sample",
    "dense_operations_per_execution", "effective_macs_per_execution", "effective_acs_per_execution",
)))  # fmt: skip
SYSTEM = (
    FigureKey("execution_time_s"), FigureKey("latency_p{percentile}_s", percentile=50),
    FigureKey("latency_p{percentile}_s", percentile=99),
    *map(FigureKey, ("idle_power_w", "active_power_w", "dynamic_power_w", "energy_per_inference_j",
                     "dynamic_energy_per_inference_j")),
)  # fmt: skip
"""The figures of each track, in the order of the table."""


@dataclass(frozen=True, slots=True)
class Asked:
    """What a user asks for: networks, devices and fields of ``GridSpec``; an option or meter may be for one device."""

    networks: tuple[str, ...]
    devices: tuple[str, ...]
    options: tuple[str, ...]
    meters: tuple[str, ...]
    simulate: bool
    others: Mapping[str, str]
    """Scenario, workload, rules and mode, if they are named."""


@dataclass(frozen=True, slots=True)
class Track:
    """One network on one device; ``figures`` are empty without a measurement, and ``error`` says why it failed."""

    device: str
    network: str
    state: State
    simulated: bool
    verdict: str
    figures: Figures
    error: str
    metered: bool = True
    rails: tuple[str, ...] = ()
    """The rails that are summed in its powers and energies."""

    @property
    def counts(self) -> bool:
        """Return whether the run kept the rules: an INVALID run is shown, but is on no front and no energy line."""
        return not self.verdict.startswith("INVALID")

    def to_json(self) -> dict[str, Any]:
        """Return the figures of both tracks, with the network and device that they belong to."""
        found = {str(key): self.figures[key].to_json() for key in (*ALGORITHM, *SYSTEM) if key in self.figures}
        names = ("device", "network", "state", "simulated", "verdict", "error", "rails")
        return {name: getattr(self, name) for name in names} | {"figures": found}


@dataclass(frozen=True, slots=True)
class Tracks:
    """The result: each network on each device, why some devices accepted no network, and each device's energy line."""

    tracks: tuple[Track, ...]
    refused: Mapping[str, str]
    points: Mapping[str, tuple[Point, ...]]
    lines: Mapping[str, EnergyLine]

    @property
    def devices(self) -> tuple[str, ...]:
        """Return the devices that accepted a network."""
        return tuple(dict.fromkeys(track.device for track in self.tracks))

    @property
    def networks(self) -> tuple[str, ...]:
        """Return the networks, as their files were named."""
        return tuple(dict.fromkeys(track.network for track in self.tracks))

    def to_json(self) -> dict[str, Any]:
        rows = [track.to_json() for track in self.tracks]
        energy = {device: _energy(line, self.points[device]) for device, line in self.lines.items()}
        return {"rows": rows, "refused": dict(self.refused), "energy": energy}


def front(tracks: Sequence[Track]) -> list[Track]:
    """Return the tracks that no other track dominates; measured and simulated tracks are not compared.

    A track dominates another if it is no worse in accuracy, energy and execution time, and better in one of them. A
    track without one of these figures is left out, and so is an INVALID one.
    """
    keys = (FigureKey("accuracy"), FigureKey("energy_per_inference_j"), FigureKey("execution_time_s"))
    known = [t for t in tracks if t.counts and all(key in t.figures for key in keys)]
    costs = [tuple((-1.0, 1.0, 1.0)[k] * track.figures[key].value for k, key in enumerate(keys)) for track in known]

    def excelled(k: int) -> bool:
        rivals = [cost for track, cost in zip(known, costs, strict=True) if track.simulated == known[k].simulated]
        return any(cost != costs[k] and all(a <= b for a, b in zip(cost, costs[k], strict=True)) for cost in rivals)

    return [track for k, track in enumerate(known) if not excelled(k)]


def grids_of(folder: Path, asked: Asked, extend: bool, wait: bool, say: Say) -> tuple[Sequence[Frozen], dict[str, str]]:
    """Add the grids of all devices to the sweep in ``folder``; return all its grids, and refusals by device.

    Raises ``UsageError`` for names, options and devices that cannot be used, and for a new grid beside others unless
    ``extend`` is set. If no device takes the networks, raises the first device's error.
    """
    if double := next((name for name in asked.devices if asked.devices.count(name) > 1), None):
        raise refused("devices", double, "Give it once", f"device {double} is given twice")
    refusals: dict[str, RigError] = {}
    specs = {device: _spec(asked, device) for device in asked.devices}
    unmetered = {device: msgspec.structs.replace(spec, meters=(NONE,)) for device, spec in specs.items()}
    known = [entry.grid.asked for entry in frozen(folder)] if is_sweep(folder) else []
    extend = extend or all(spec in (*specs.values(), *unmetered.values()) for spec in known)
    for device, spec in specs.items():
        if not spec.meters and unmetered[device] in known:
            continue
        try:
            grids_for(folder, spec, extend, wait, say)
        except RigError as error:
            if isinstance(error, UsageError) and error.field != "network":
                raise
            if error.field == "meter" and not spec.meters:  # the device has no meter: its power is not known
                grids_for(folder, unmetered[device], extend, wait, say)
            else:
                refusals[device] = error
    if len(refusals) == len(asked.devices):
        raise next(iter(refusals.values()))
    return frozen(folder) if is_sweep(folder) else (), {device: str(error) for device, error in refusals.items()}


def tracks_of(folder: Path, grids: Iterable[Frozen], refusals: Mapping[str, str]) -> Tracks:
    """Return the results of a sweep's cells, from rows that were verified and kept, and each device's energy line."""
    tracks, grids = [], tuple(grids)
    unmetered = {c.key for g in grids for c in cells_of([g.grid]) if not any(g.grid.devices[c.device].meters)}
    for cell in cells_of(entry.grid for entry in grids):
        state = state_of(folder, cell)
        row = kept_row(folder, cell) if state == "done" else None
        figures = {} if row is None else {
            figure.key: from_json(figure.whole) if figure.whole else Quantity(figure.value, entry_of(figure.key).unit)
            for figure in row.figures
            if figure.key.of_whole and figure.value is not None
        }  # fmt: skip
        failed = error_of(folder, cell) if state == "failed" else {}
        error = str(RigError(str(failed["message"]), remedy=str(failed.get("remedy", "")))) if failed else ""
        error = row.error if row is not None else error
        simulated = cell.simulate if row is None else row.simulated
        verdict, network = "" if row is None else row.verdict, cell.options.get("network", "")
        known, metered = Figures(figures), cell.key not in unmetered
        rails = tuple(sorted({f.key.rail for f in row.figures if f.key.rail} if row is not None else ()))
        tracks.append(Track(cell.device, network, state, simulated, verdict, known, error, metered, rails))
    devices = dict.fromkeys(track.device for track in tracks)
    found = {d: [(t.counts, p) for t in tracks if t.device == d and (p := point_of(t.figures))] for d in devices}
    points = {device: tuple(point for counts, point in of if counts) for device, of in found.items()}
    lines = {device: line_of(points[device]) for device, of in found.items() if of}
    return Tracks(tuple(tracks), refusals, points, lines)


def _spec(asked: Asked, device: str) -> GridSpec:
    """Return the grid of one device, with the options that it, its workload or its scenario take."""
    factory = load("devices", device)
    if not takes(factory, "network"):
        remedy = "Name devices that have the option network: `rig list NAME` shows the options"
        raise refused("devices", device, remedy, f"device {device} takes no network")
    spec = msgspec.convert({"devices": (device,), **asked.others}, GridSpec)
    simulate = asked.simulate and (takes(factory, "simulate") or plant_factory_of(factory, True) is not None)
    options = dict(from_texts((text for text in asked.options if _is_for(text, device, asked, spec)), "option"))
    own = {key.removeprefix(f"{device}."): value for key, value in options.items()}
    given = {"simulate": simulate, "meters": _meters(asked, device), "options": own}
    return msgspec.structs.replace(spec, **given, vary={"network": asked.networks})


def _meters(asked: Asked, device: str) -> tuple[str, ...]:
    found = []
    for text in asked.meters:
        whose, named, name = text.rpartition("=")
        if named and whose not in asked.devices:
            raise refused("meter", text, "Write --meter NAME or --meter DEVICE=NAME, with a DEVICE of --devices")
        found += [name] if whose in ("", device) else []
    return tuple(found)


def _is_for(text: str, device: str, asked: Asked, spec: GridSpec) -> bool:
    """Return whether an option is for a device.

    An option that names a device is for this device only. Any other option is for each device that declares it. It is
    for all devices if the scenario or the workload declares it, or if no device does.
    """
    key = text.partition("=")[0]
    if named := next((name for name in asked.devices if key.startswith(f"{name}.")), None):
        return named == device
    shared = [load("scenarios", spec.scenario), load("workloads", spec.workload)]
    factories = {name: load("devices", name) for name in asked.devices}
    of = {name: [f, *filter(None, [plant_factory_of(f, asked.simulate)])] for name, f in factories.items()}
    bare = key.rpartition(".")[2]
    every = [factory for takers in of.values() for factory in takers]
    return any(bare in options_of(f) for f in (*shared, *of[device])) or not any(bare in options_of(f) for f in every)


def _energy(line: EnergyLine, points: Sequence[Point]) -> dict[str, Any]:
    stated = {"per_operation_j": line.per_operation, "per_execution_j": line.per_execution}
    found: dict[str, Any] = {name: q.to_json() for name, q in stated.items() if q is not None}
    found |= {"refusal": line.refusal, "misfit": line.misfit, "allowed": line.allowed}
    found["points"] = [
        {"operations": p.operations, "dynamic_energy_j": p.dynamic.to_json(), "idle_energy_j": p.idle_j} for p in points
    ]
    return found
