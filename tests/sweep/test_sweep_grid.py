"""A grid is expanded and checked against the factories before anything is recorded."""

from pathlib import Path

import msgspec
import pytest
from hypothesis import given, strategies as st

from rig.errors import UnknownNameError, UsageError
from rig.sweep.grid import Cell, Facts, Grid, GridSpec, cells_of, plain, with_defaults
from rig.sweep.grid_checks import checked
from tests.support.paths import SUPPORT
from tests.support.raised import raised
from tests.support.sweep_bench import QUICK, sweep

KEYS = st.text("abcdefgh_.", min_size=1, max_size=12)
VALUES = st.text(st.characters(codec="utf-8", exclude_characters="\n"), min_size=1, max_size=30)


def grid(device: str = "mock", repetitions: int = 1, **vary: tuple[str, ...]) -> Grid:
    asked = GridSpec((device,), vary=vary, repetitions=repetitions)
    return Grid(asked, {}, vary, {device: {}}, {device: Facts(False, ("mock",))})


def asked(**given: object) -> GridSpec:
    return msgspec.convert({"devices": ["mock"], "simulate": True, "options": {"samples": "2"}} | given, GridSpec)


# ---- cells ----------------------------------------------------------------------------------


@given(
    st.dictionaries(KEYS, st.lists(VALUES, min_size=1, max_size=3, unique=True), max_size=3),
    st.integers(1, 3),
    st.text(min_size=1, max_size=200),
)
def test_each_combination_has_its_own_folder(vary: dict[str, list[str]], repetitions: int, device: str) -> None:
    cells = cells_of([grid(device, repetitions, **{key: tuple(values) for key, values in vary.items()})])
    count = repetitions
    for values in vary.values():
        count *= len(values)
    names = {cell.key for cell in cells}
    assert len(cells) == len(names) == count
    assert all(name == Path(name).name and len(name) < 200 and not name.startswith((".", "-")) for name in names)
    assert len({name.lower() for name in names}) == count


def test_the_key_of_a_cell_never_changes() -> None:
    (cell,) = cells_of([grid(inference_s=("0.01",))])
    assert cell.key == "mock-inference_s=0.01-r0-b97a8c31eea1"


@given(st.one_of(st.integers(-(10**15), 10**15), st.floats(allow_nan=False, allow_infinity=False)))
def test_a_number_is_written_without_loss(value: float) -> None:
    assert type(value)(plain(value)) == value


# ---- seeds ----------------------------------------------------------------------------------


def seeds(given: GridSpec) -> list[dict[str, str]]:
    return [{k: v for k, v in cell.options.items() if "seed" in k} for cell in cells_of([checked(given)])]


def test_repetition_k_raises_every_seed_by_k() -> None:
    declared = {"device.device_seed": "1", "meter.meter_seed": "2", "bench.seed": "0"}
    third = {"device.device_seed": "3", "meter.meter_seed": "4", "bench.seed": "2"}
    assert seeds(asked(repetitions=3))[::2] == [declared, third]


def test_repetitions_count_from_a_given_seed() -> None:
    given = seeds(asked(repetitions=2, options={"device_seed": "70"}, repetition_seeds=["device_seed"]))
    assert [one["device_seed"] for one in given] == ["70", "71"]
    assert {one["device_seed"] for one in seeds(asked(repetitions=3, vary={"device_seed": ["5"]}))} == {"5"}
    assert seeds(asked(repetitions=2, repetition_seeds=["none"])) == [{}, {}]


def test_a_repetition_seed_is_a_whole_number() -> None:
    raised(UsageError, checked, asked(repetition_seeds=["inference_s"]), says="inference_s is not a whole number")


# ---- what is refused before anything is recorded --------------------------------------------


@pytest.mark.parametrize(("words", "named"), [
    ("--vary inference_z=1,2", "inference_z"), ("--vary device.rate_hz=1,2", "rate_hz"),
    ("--vary inference_s=0.01,fast", "'fast'"), ("--vary inference_s=0.01,nan", "'nan'"),
    ("--vary marks=yes,perhaps", "marks"), ("--vary inference_s=", "the grid has no cells"),
    ("--vary inference_s=1,,2", "empty value"), ("--vary inference_s=0.1,0.10", "0.1 twice"),
    ("--vary idle_s=1,2", "both varied and fixed"), ("--vary device.marks=true,false", "the same option"),
    ("--vary inference_s", "key=value"), ("--vary inference_s=1 --vary inference_s=2", "is given twice"),
    ("--repetitions 0", "the grid has no cells"), ("--mode sideways", "sideways"), ("--scenario nope", "nope"),
    ("--workload nope", "nope"), ("--rules nope", "nope"), ("--meter nope", "nope"), ("--repetition-seed nope", "nope"),
    ("--jobs -1", "-1 jobs"),
])  # fmt: skip
def test_an_impossible_grid_is_refused_first(tmp_path: Path, words: str, named: str) -> None:
    raised(UsageError, sweep, "--device", "mock", *QUICK, "--out", str(tmp_path / "s"), *words.split(), says=named)
    assert not (tmp_path / "s").exists()


def test_an_option_must_be_known_to_every_device(tmp_path: Path) -> None:
    file = tmp_path / "own.py"
    of_mock = "from fixtures.bench.mock_device import open_device as mock\n"
    file.write_text(of_mock + "def open_device(bench, *, inference_s: float = 0.1): return mock(bench)\n")
    both = ("mock", f"{file}:open_device")
    assert len(cells_of([checked(asked(devices=both, vary={"inference_s": ["0.1"]}))])) == 2
    raised(UnknownNameError, checked, asked(devices=both, vary={"idle_w": ["0.1"]}), says="idle_w")


def test_too_many_cells_are_refused() -> None:
    raised(UsageError, checked, asked(repetitions=10_000_000), says="10000000 cells")


def test_a_cell_has_its_own_command() -> None:
    cell = Cell("k", "mock", "server", "asc", "quick", "together", True, ("mock",), {"a": "1"}, 0, False)
    words = "rig measure --device mock --scenario server --workload asc --rules quick --mode together --simulate"
    assert " ".join(cell.command()) == f"{words} --meter mock --option a=1 --out cells/k"


# ---- problems -------------------------------------------------------------------------------


def problems(**given: object) -> GridSpec:
    base = {"scenario": "optimization", "workload": "qubo-mis", "simulate": False, "meters": ["none"]}
    file = SUPPORT / "lazy_solver.py"
    return asked(**base | {"devices": [f"{file}:solver"], "options": {"nodes": "12"}} | given)


@pytest.mark.parametrize("how", [{"options": {"draw": "2"}}, {"vary": {"draw": ["0", "2"]}}])
def test_a_workload_that_draws_anew_for_each_cell_is_refused(how: dict[str, object]) -> None:
    caught = raised(UsageError, checked, problems(**how), says="draws new samples each time")
    assert "--option seeds=" in caught.remedy


def test_fixed_seeds_give_every_cell_equal_problems() -> None:
    assert len(cells_of([checked(problems(vary={"seeds": ["0-4", "7,8"], "timeout_s": ["0.1", "1"]}))])) == 4


@pytest.mark.parametrize("sizes", [["0", "12"], ["12", "0"]])
def test_an_invalid_value_fails_only_its_cells(sizes: list[str]) -> None:
    grid = checked(problems(options={}, vary={"workload.nodes": sizes}))
    assert [cell.options["workload.nodes"] for cell in cells_of([grid])] == sizes


def test_a_grid_without_valid_values_is_refused() -> None:
    raised(UsageError, checked, problems(options={}, vary={"nodes": ["0", "1"]}), says="nodes is 0")
    raised(UsageError, checked, problems(options={"density": "7"}, vary={"nodes": ["12", "13"]}), says="density")


@pytest.mark.parametrize(("named", "workload"), [("optimization", "qubo-mis"), ("single-stream", "asc"), ("", "asc")])
def test_a_scenario_has_a_default_workload(named: str, workload: str) -> None:
    given = {"scenario": named} if named else {}
    assert with_defaults(given)["workload"] == workload
    assert with_defaults(given | {"workload": "mine"})["workload"] == "mine"
    assert with_defaults({"workload": "qubo"})["scenario"] == "optimization"
