"""Check a grid before anything is recorded: names, option keys and types, and the bench of each device."""

import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path

import msgspec

from rig.bench.bench_file import meter_slot
from rig.errors import RigError, UsageError, refused
from rig.factories import options_of, split_options, values_of
from rig.plugins import load
from rig.session.locks import Say, device_lock
from rig.session.measure import MODES
from rig.session.setup import Takers, plant_factory_of, set_up_bench, which_of
from rig.session.trusted_requests import note
from rig.sweep.grid import AUTO, NONE, Facts, Grid, GridSpec, cells_of, check_size, difference, plain, texts
from rig.sweep.sweep_folder import FILE, Frozen, check_empty, freeze, frozen, is_sweep
from rig.types import Workload


def grids_for(folder: Path, spec: GridSpec, extend: bool, wait: bool, say: Say) -> Sequence[Frozen]:
    """Return the grids to record in ``folder``: the grids that are stored there, and ``spec``, which is added if new.

    Raises ``UsageError`` for an additional grid without ``extend``, and ``StoreError`` if the folder has other files.
    """
    grids = frozen(folder) if is_sweep(folder) else ()
    if any(entry.grid.asked == spec for entry in grids):
        return grids
    if grids and not extend:
        nearest = min((difference(entry.grid.asked, spec) for entry in reversed(grids)), key=len)
        what = f"{folder} holds another grid: {'; '.join(nearest)}"
        where = "; relative file names count from the directory where the sweep was begun" if spec.code() else ""
        raise refused("grid", str(folder), f"Add its cells with --extend, or name another --out{where}", what)
    if not grids:
        check_empty(folder)
    grids = freeze(folder, checked(spec, wait, say), sys.argv)
    if grids[-1].grid.code():
        note(folder / FILE, grids[-1].grid_sha256.encode())
    return grids


def checked(spec: GridSpec, wait: bool = True, say: Say | None = None) -> Grid:
    """Check that every option of a grid is known and of the right type, and return the grid.

    Opens and closes the bench of each device, for the first of its cells that can be opened. Raises as
    ``session.setup.set_up_bench`` does, and ``UsageError`` for a value that no option accepts.
    """
    check_size(spec)
    if spec.mode not in MODES:
        raise refused("mode", spec.mode, f"Known: {', '.join(MODES)}", f"mode {spec.mode!r} is unknown")
    facts: dict[str, Facts] = {}
    seeds: dict[str, dict[str, int]] = {}
    spelled: list[dict[str, tuple[str, ...]]] = []
    for device in spec.devices:
        own = _own_takers(spec, device)
        facts[device] = _facts_of(spec, device, "bench" in own, wait, say)
        meters = {meter_slot(k): load("meters", m) for k, m in enumerate(facts[device].meters)}
        owners = _owners(spec, own, meters)
        spelled.append(_canonical(spec, owners, own | meters))
        seeds[device] = _seeds(spec, owners, own, meters)
    values = {key: spelled[0][key] if all(s[key] == spelled[0][key] for s in spelled) else v for key, v in _all(spec)}
    for key in spec.vary:
        double = next((v for v, count in Counter(values[key]).items() if count > 1), None)
        if double is not None:
            raise UsageError(f"{key} has the value {double} twice", field=key, value=double, remedy="Give it once")
    options, vary = {key: values[key][0] for key in spec.options}, {key: values[key] for key in spec.vary}
    return Grid(spec, options, vary, seeds, facts)


def _all(spec: GridSpec) -> list[tuple[str, tuple[str, ...]]]:
    return [*((key, (value,)) for key, value in spec.options.items()), *spec.vary.items()]


def _own_takers(spec: GridSpec, device: str) -> Takers:
    """Return the factories that take options, as in ``session.setup.set_up_bench``, except meters."""
    factory = load("devices", device)
    takers = {"device": factory, "scenario": load("scenarios", spec.scenario)}
    takers["workload"] = load("workloads", spec.workload)
    plant = plant_factory_of(factory, spec.simulate)
    return takers | ({"bench": plant} if plant else {})


def _facts_of(spec: GridSpec, device: str, simulated: bool, wait: bool, say: Say | None) -> Facts:
    """Return the facts of a device's bench, from the first cell that can be opened; cells before it fail later.

    Raises the error of the first cell if each value of a varied key is unusable, or if the cause is another key.
    """
    vary, first = dict(spec.vary), None
    while True:
        try:
            return _facts_of_first_cell(spec, vary, device, simulated, wait, say)
        except UsageError as error:
            first = first or error
            key = next((k for k in vary if k.rpartition(".")[2] == error.field.rpartition(".")[2]), None)
            if key is None or len(vary[key]) == 1:
                raise first from None
            vary[key] = vary[key][1:]


def _facts_of_first_cell(
    spec: GridSpec, vary: Mapping[str, tuple[str, ...]], device: str, simulated: bool, wait: bool, say: Say | None
) -> Facts:
    """Return the facts of a device's bench, opened for its first cell; check the workload with each varied value."""
    first = msgspec.structs.replace(spec, devices=(device,), vary={k: v[:1] for k, v in vary.items()}, repetitions=1)
    options = first.options | {key: values[0] for key, values in first.vary.items()}
    trial = Grid(first, options, {}, {device: {}}, {device: Facts(not simulated, ())})
    (cell,) = cells_of([trial])
    declared = options_of(load("workloads", spec.workload))
    own = {k: v for k, v in vary.items() if k.removeprefix("workload.") in declared}
    lock = nullcontext() if simulated else device_lock(device, wait, say, which_of(device, texts(cell.options)))
    with lock, set_up_bench(cell.request(Path("nowhere"))) as setup:
        info = setup.bench.device.info()
        _check_same(setup.workload, setup.other_workload, {})
        for changed in ({key.rpartition(".")[2]: value} for key, values in own.items() for value in values[1:]):
            try:
                one = setup.other_workload(changed)
            except RigError:  # the cells of this value will fail
                continue
            _check_same(one, setup.other_workload, changed)
    meters = tuple(n for n in cell.meters if n != NONE) if cell.meters else (info.onboard_meter or "",)
    return Facts(exclusive=not (simulated and info.mode == "simulator"), meters=meters)


def _check_same(one: Workload, open_it: Callable[[Mapping[str, str]], Workload], changed: Mapping[str, str]) -> None:
    """Raise ``UsageError`` if a workload differs when it is opened again, because every cell opens it again."""
    other = open_it(changed)
    if one.digest_sha256 != other.digest_sha256:
        seeds = one.details.get("seeds")
        named = f"seeds={','.join(map(str, seeds))}" if isinstance(seeds, list) and len(seeds) <= 50 else "its seeds"
        what = f"workload {one.name} draws new samples each time it is opened, so no two cells would measure the same"
        remedy = f"Fix its samples with --option {named} instead of the option that draws them"
        raise refused("workload", one.name, remedy, what)


def _owners(spec: GridSpec, own: Takers, meters: Takers) -> dict[tuple[str, str], str]:
    """Return, by (taker, name), the key of the grid that sets the option. Raises ``UsageError`` if two keys set it."""
    found: dict[tuple[str, str], str] = {}
    for key, values in _all(spec):
        for place in _places(key, values[0], own, meters):
            if place in found:
                raise refused(key, values[0], "Give one of them", f"{key} and {found[place]} are the same option")
            found[place] = key
    return found


def _places(key: str, value: str, own: Takers, meters: Takers) -> list[tuple[str, str]]:
    """Return (taker, name) of the option that a key sets, for each taker; meters only if no other part takes the key.

    Raises ``UnknownNameError``.
    """
    split = split_options([f"{key}={value}"], own | meters)
    places = [(who, name) for who, given in split.items() for name in given]
    return [p for p in places if p[0] in own] or places


def _canonical(spec: GridSpec, owners: Mapping[tuple[str, str], str], takers: Takers) -> dict[str, tuple[str, ...]]:
    """Return every value in the form of its option's type. Raises ``UsageError``, which names key and value."""
    found = {}
    for key, values in _all(spec):
        places = [place for place, k in owners.items() if k == key]
        rows = []
        for who, name in places:
            try:
                rows.append(tuple(plain(values_of(takers[who], {name: value})[name]) for value in values))
            except UsageError as error:
                error.field = key
                raise
        found[key] = rows[0] if all(row == rows[0] for row in rows) else values
    return found


def _seeds(spec: GridSpec, owners: Mapping[tuple[str, str], str], own: Takers, meters: Takers) -> dict[str, int]:
    """Return the seeds that differ between repetitions, each with its value in the first repetition."""
    takers = {who: f for who, f in (own | meters).items() if who not in ("scenario", "workload")}
    found: dict[str, int] = {}
    for key in spec.repetition_seeds:
        if key == AUTO:
            for who, factory in takers.items():
                for option in options_of(factory).values():
                    declared = option.name == "seed" or option.name.endswith("_seed")
                    known = owners.get((who, option.name), f"{who}.{option.name}")
                    whole = option.kind is int and option.default is not None
                    if declared and whole and known not in spec.vary:
                        found[known] = int(spec.options.get(known, option.default))
        elif key != NONE:
            for who, name in _places(key, "0", own, meters):
                option = options_of((own | meters)[who])[name]
                if option.kind is not int:
                    what = f"repetition seed {key} is not a whole number"
                    raise refused("repetition_seeds", key, "Name an option of type int", what)
                known = owners.get((who, name), f"{who}.{name}")
                found[known] = int(spec.options.get(known, option.default or 0))
    return found
