"""A search for the largest problem ends with an answer, even if memory ends it."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest

from rig.session.searches import memory_bound
from tests.support.processes import MAIN, options, python
from tests.support.undrawn import UNDRAWN

resource = pytest.importorskip("resource")
linux = pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="limits of data are Linux's")


@linux
def test_more_than_its_share_of_memory_is_an_error_and_no_end_of_the_process() -> None:
    before = resource.getrlimit(resource.RLIMIT_DATA)
    with memory_bound(0.01), pytest.raises(MemoryError):
        np.empty(2**40, dtype=np.uint8)
    assert resource.getrlimit(resource.RLIMIT_DATA) == before
    assert len(np.empty(2**26, dtype=np.uint8)) == 2**26


@linux
def test_a_limit_that_the_operator_set_is_not_widened() -> None:
    before = resource.getrlimit(resource.RLIMIT_DATA)
    resource.setrlimit(resource.RLIMIT_DATA, (2**40, before[1]))
    try:
        with memory_bound(1000.0):
            assert resource.getrlimit(resource.RLIMIT_DATA)[0] == 2**40
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, before)


HUNGRY = '''
"""A solver that finds the best single node, and takes a gibibyte of memory for each node beyond 20."""

import numpy as np

from rig.engine.blocking_device import blocking
from scenarios.workloads.qubo_mis.graph import from_payload
from rig.types import DeviceInfo


def open_device():
    held = []

    def solve(sample):
        nodes = from_payload(sample.payload).nodes
        held[:] = [np.empty(max(0, nodes - 20) << 30, dtype=np.uint8)]
        solution = np.zeros(nodes, dtype=np.uint8)
        solution[0] = 1
        return {"cost": -1.0, "solution": np.packbits(solution).tobytes().hex()}

    return blocking(solve, DeviceInfo("hungry", "hardware", phases=("solve",)))
'''


@linux
def test_a_solver_that_runs_out_of_memory_ends_the_search_with_the_size_before(tmp_path: Path) -> None:
    driver = tmp_path / "hungry.py"
    driver.write_text(HUNGRY)
    asked = ["--scenario", "optimization", "--workload", "qubo-mis", "--find-size", "--meter", "none"]
    given = options("nodes=10", "density=0.5", "idle_s=0", "seeds=0")
    words = ["measure", "--device", f"{driver}:open_device", *asked, *given, "--out", tmp_path / "run"]
    done = python(UNDRAWN + MAIN, *words, timeout=120)
    assert done.returncode in (0, 30), done.stderr
    found = re.search(r"the largest is (\d+) nodes", done.stderr)
    assert found is not None, done.stderr
    assert int(found[1]) >= 20
    assert "Largest problem solved, nodes" in done.stdout
    results = json.loads((tmp_path / "run" / "derived" / "results.json").read_text())
    assert results["quantities"]["largest_nodes"]["value"] == int(found[1])
    assert "Memory" in " ".join(results["notes"])
