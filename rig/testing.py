"""The pytest plug-in for tests of drivers, installed with the rig; its fixtures are below.

    def test_my_chip(assert_conforms, rig_measure):
        assert_conforms(open_device())
        result = rig_measure("drivers/my_chip.py:open_device", meter="mock")

A repository may have its own packages ``drivers``, ``fixtures``, ``reports`` or ``scenarios``: while pytest runs, each
such name covers the repository's package and the rig's. Nothing else of the rig is imported until a test requests a
fixture.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from rig.analysis.result.result import Result
    from rig.types import Sample, SimulatedBench

Conforms = Callable[..., tuple[str, ...]]
Measures = Callable[..., "Result"]
_HOME = Path(__file__).resolve().parent.parent
_SHARED = ("drivers", "fixtures", "reports", "scenarios")


@pytest.fixture
def rig_bench() -> SimulatedBench:
    """A simulated bench in virtual time, with known energy.

    Pass it to a driver that takes ``bench``, or set the drawn power with ``install`` and ``occupy``. ``meter(name,
    rate_hz)`` measures it, ``energy_j(on_ns, off_ns)`` is the truth, and its ``clock`` goes to ``assert_conforms``.
    """
    from rig.factories import build
    from rig.plugins import load
    from rig.session.setup import PLANT

    bench: SimulatedBench = build(load("plants", PLANT), {}, {})
    return bench


@pytest.fixture
def rig_measure(tmp_path: Path, pytestconfig: pytest.Config) -> Measures:
    """A function that measures in a temporary directory, and returns the ``Result``.

    ``rig_measure(device, meter="none", scenario="single-stream", workload=None, data=None, simulate=False,
    options=None)`` takes names as ``rig measure`` does; a path is relative to pytest's root directory. Times and
    power are measured in one run (``--mode together``). Raises a ``RigError`` as the command does.
    """

    def measured(
        device: str,
        *,
        meter: str = "none",
        scenario: str = "single-stream",
        workload: str | None = None,
        data: str | None = None,
        simulate: bool = False,
        options: Mapping[str, Any] | None = None,
    ) -> Result:
        import rig
        from rig.bench.request import workload_for

        def placed(name: str) -> str:
            return str(pytestconfig.rootpath / name) if ".py:" in name else name

        folder = tmp_path / f"run-{len(list(tmp_path.glob('run-*')))}"
        request = rig.Request(
            device=placed(device), meters=(placed(meter),), scenario=scenario,
            workload=placed(workload_for(scenario, workload, data)), simulate=simulate,
            data=None if data is None else str(pytestconfig.rootpath / data),
            options=tuple(f"{key}={value}" for key, value in (options or {}).items()), mode="together", out=folder,
        )  # fmt: skip
        return rig.evaluate(rig.open_run(rig.measure(request, quiet=True)))

    return measured


@pytest.fixture
def assert_conforms() -> Conforms:
    """A function that checks an opened device, meter or workload by every rule of the rig. A device or meter is closed.

    ``assert_conforms(device, samples=(...))`` issues the given samples to a device, by default three samples of noise.
    Further arguments are those of ``rig.check_device`` and ``rig.check_meter``, such as ``clock=rig_bench.clock``. If
    a rule is broken, the test fails and names each broken rule. Otherwise the names of the kept rules are returned.
    """

    def conforms(part: Any, samples: Sequence[Sample] = (), **more: Any) -> tuple[str, ...]:
        import rig
        from rig.errors import ConformanceError

        try:
            if hasattr(part, "submit"):
                return rig.check_device(part, samples or _noise(), **more)
            return rig.check_meter(part, **more) if hasattr(part, "read") else rig.check_workload(part, **more)
        except ConformanceError as error:
            pytest.fail(str(error), pytrace=False)

    return conforms


def _noise() -> list[Sample]:
    import numpy as np

    from rig.types import Sample

    draw = np.random.default_rng(1)
    return [Sample(f"noise-{k}", draw.normal(size=1000), label="noise", rate_hz=1000.0) for k in range(3)]


class _Shared:
    """Finds packages: a name that the rig and the tested repository share gets the folders of both."""

    @staticmethod
    def find_spec(name: str, path: Sequence[str] | None = None, target: object = None) -> ModuleSpec | None:
        ours = _HOME.joinpath(*name.split("."))
        if name.partition(".")[0] not in _SHARED or not ours.is_dir():
            return None
        spec = PathFinder.find_spec(name, path)
        if spec is not None and spec.submodule_search_locations is not None:
            last = name.rpartition(".")[2]
            theirs = [str(Path(entry, last)) for entry in path or sys.path if Path(entry, last).is_dir()]
            folders = [*spec.submodule_search_locations, *theirs, str(ours)]
            spec.submodule_search_locations = list(dict.fromkeys(folders))
        return spec


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests() -> None:
    """Make shared names cover the packages of the repository too, before any of its files is imported."""
    if _Shared not in sys.meta_path:
        sys.meta_path.insert(0, _Shared)
