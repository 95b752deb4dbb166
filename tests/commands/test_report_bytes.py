"""The same recording gives the same bytes, with any number of threads for linear algebra."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from fixtures.worlds.lab_recording import plain_lab, write
from tests.support.processes import MAIN, python


def test_a_report_is_the_same_with_one_thread_and_with_two(tmp_path: Path) -> None:
    """Two starts of the interpreter, and enough readings for sums by several threads, take two seconds."""
    write(plain_lab(11, "plain"), tmp_path / "run")
    said = []
    for threads in ("1", "2"):
        env = os.environ | {"OPENBLAS_NUM_THREADS": threads, "MKL_NUM_THREADS": threads, "OMP_NUM_THREADS": threads}
        said.append(python(MAIN, "report", tmp_path / "run", "--json", env=env).stdout)
        shutil.rmtree(tmp_path / "run" / "derived")  # otherwise the second report reads files of the first
    assert len(said[0]) > 1000
    assert said[0] == said[1]


def test_a_measurement_is_computed_on_one_thread_as_a_report_is() -> None:
    code = "import ctypes; from numpy.linalg import _umath_linalg\n"
    code += "from rig.commands.measure import compute_on_one_thread\n"
    code += "threads = ctypes.CDLL(_umath_linalg.__file__).scipy_openblas_get_num_threads64_\n"
    code += "before = threads(); compute_on_one_thread(); print(before, threads())"
    env = os.environ | {"OPENBLAS_NUM_THREADS": "2"}
    done = python(code, env=env)
    if "undefined symbol" in done.stderr:
        pytest.skip("numpy is built on another library")
    assert done.stdout == "2 1\n", done.stderr
