"""``rig --help`` and ``rig list`` answer quickly: they import no numerical package and no vendor's stack.

What a command computes is the same to the byte with any number of threads for linear algebra.
"""

import json
import shutil
from functools import cache
from pathlib import Path

import pytest

from fixtures.worlds.lab_recording import plain_lab, write
from rig.session.report import report
from tests.support.paths import ROOT
from tests.support.plants import on_plant
from tests.support.processes import MAIN, python

HEAVY = {"numpy", "scipy", "pandas", "matplotlib", "pyarrow", "rich", "jinja2", "soundfile", "soxr", "torch"}
VENDORS = {"rockpool", "xylosim", "samna", "lava", "spynnaker", "nest", "pyvisa", "serial"}
PROGRAM = """
import sys
from rig.commands.shell.main import main
for argv in {argvs}:
    try:
        main(argv)
    except SystemExit:
        pass
print(*sorted(sys.modules), file=sys.stderr)
"""


@cache
def ran(*argv: str, times: int = 1) -> tuple[str, set[str]]:
    """Return the output of a command in a fresh process, and the modules that it imports."""
    done = python(PROGRAM.format(argvs=[list(argv)] * times))
    assert done.returncode == 0, done.stderr
    return done.stdout, set(done.stderr.split())


@pytest.mark.parametrize("argv", [("--help",), ("list",), ("list", "--json"), ("measure", "--help")], ids=" ".join)
def test_help_and_lists_import_nothing_heavy(argv: tuple[str, ...]) -> None:
    said, modules = ran(*argv)

    assert said
    assert not modules & (HEAVY | VENDORS)
    drivers = [name for name in modules if name.startswith(("drivers.devices.", "fixtures.", "scenarios.workloads."))]
    assert not [name for name in drivers if not (ROOT / name.replace(".", "/")).is_dir()]  # folders import nothing


OPENS = {"importlib.metadata", "inspect", "ast", "tempfile", "threading"}


@pytest.mark.parametrize(("argv", "shown", "without"), [
    ("--help", "compute and verify target costs", OPENS), ("list", "mock", OPENS),
    ("list nothing-of-this-name", "", HEAVY | VENDORS),
    ("list xylo", "core_clock_hz", VENDORS),
    ("list mock", "inference_s", {"scipy.signal", "scipy.stats"}),  # each worker of a sweep opens it anew
])  # fmt: skip
def test_names_are_listed_without_heavy_imports(argv: str, shown: str, without: set[str]) -> None:
    said, modules = ran(*argv.split())

    assert shown in said
    assert not modules & without


def test_a_report_imports_only_needed_packages(tmp_path: Path) -> None:
    on_plant(tmp_path / "run", device={"preprocess_s": 0.03, "inference_s": 0.05}, meter={"noise": 0.005})

    said, modules = ran("report", str(tmp_path / "run"), times=2)  # again, from stored files

    assert said.count("Dynamic power") == 2
    assert "reports.pictures.draw" in modules
    assert not modules & {"matplotlib", "pandas", "scipy", "numpy.random"}


def test_json_output_imports_no_page_modules(tmp_path: Path) -> None:
    write(plain_lab(1, "plain"), tmp_path / "run")
    (tmp_path / "run" / "derived").mkdir()
    (tmp_path / "run" / "derived" / "report.html").write_text("an earlier page")

    said, modules = ran("report", str(tmp_path / "run"), "--json")

    assert json.loads(said)["files"] == [str(tmp_path / "run" / "derived" / "results.json")]
    assert (tmp_path / "run" / "derived" / "report.html").read_text() == "an earlier page"
    assert not modules & {"pandas", "scipy", "matplotlib", "jinja2", "pyarrow.compute", "importlib.metadata"}
    assert not modules & {"reports.pictures.draw", "rig.submission"}


def test_figures_are_reported_before_any_page_is_written(tmp_path: Path) -> None:
    write(plain_lab(1, "plain"), tmp_path / "run")
    there = []

    found = report(tmp_path / "run", tell=lambda result: there.append((tmp_path / "run" / "derived").exists()))

    assert there == [False]
    assert (found.folder / "report.html").is_file()


# ---- linear algebra


def test_one_and_two_threads_give_the_same_report(tmp_path: Path) -> None:
    """Two starts of the interpreter, and enough readings for sums by several threads, take two seconds."""
    write(plain_lab(11, "plain"), tmp_path / "run")
    said = []
    for threads in ("1", "2"):
        env = {"OPENBLAS_NUM_THREADS": threads, "MKL_NUM_THREADS": threads, "OMP_NUM_THREADS": threads}
        said.append(python(MAIN, "report", tmp_path / "run", "--json", env=env).stdout)
        shutil.rmtree(tmp_path / "run" / "derived")  # otherwise the second report reads files of the first
    assert len(said[0]) > 1000
    assert said[0] == said[1]


def test_a_measurement_is_computed_on_one_thread() -> None:
    code = "import ctypes; from numpy.linalg import _umath_linalg\n"
    code += "from rig.commands.measure import compute_on_one_thread\n"
    code += "threads = ctypes.CDLL(_umath_linalg.__file__).scipy_openblas_get_num_threads64_\n"
    code += "before = threads(); compute_on_one_thread(); print(before, threads())"
    done = python(code, env={"OPENBLAS_NUM_THREADS": "2"})
    if "undefined symbol" in done.stderr:
        pytest.skip("numpy is built on another library")
    assert done.stdout == "2 1\n", done.stderr
