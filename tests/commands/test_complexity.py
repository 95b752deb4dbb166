"""``rig complexity`` and ``rig network export``: the cost of a network, and the network itself, without a run."""

import json
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from drivers.devices.pynn.description import write_network
from drivers.devices.pynn.ne15 import PIXELS, deployed
from fixtures.bench.mock_device import open_device
from fixtures.bench.true_power import open_plant
from rig.commands.shell.main import main
from rig.types import Device
from tests.support.raised import Capture

lacking = find_spec("rockpool") is None or find_spec("nir") is None
needs_xylo = pytest.mark.skipif(lacking, reason="needs neurorig[xylo,nir]")


def open_solver(*, simulate: bool = False) -> Device:
    """Return a device that declares no network, as a solver does."""
    return open_device(open_plant())


def said(capsys: Capture, *argv: str) -> tuple[int, str, str]:
    code = main(argv)
    out, err = capsys.readouterr()
    return code, out, err


@needs_xylo
def test_the_shipped_network_has_its_costs(capsys: Capture) -> None:
    code, out, _ = said(capsys, "complexity", "--device", "xylo", "--json")
    quantities = json.loads(out)["quantities"]
    assert code == 0
    assert quantities["dense_operations_per_execution"]["value"] == 16 * 63 + 2 * 63 * 63 + 63 * 4
    assert quantities["footprint_weights_bytes"]["value"] == 16 * 63 + 2 * 63 * 63 + 63 * 4
    assert quantities["model_execution_rate_hz"]["value"] == 100.0


@needs_xylo
def test_an_exported_network_has_the_deployed_costs(capsys: Capture, tmp_path: Path) -> None:
    _, before, _ = said(capsys, "complexity", "--device", "xylo", "--json")
    file = str(tmp_path / "shipped.nir")
    code, out, _ = said(capsys, "network", "export", "--out", file, "--json")
    options = [text for name, value in json.loads(out)["options"].items() for text in ("--option", f"{name}={value}")]
    _, after, _ = said(capsys, "complexity", "--device", "xylo", "--json", *options)
    assert code == 0
    assert json.loads(after) == json.loads(before)


@pytest.mark.parametrize("device", ["nest", "spinnaker"])
def test_a_pynn_network_states_costs_without_a_simulator(device: str, capsys: Capture, tmp_path: Path) -> None:
    weights = np.zeros((PIXELS, 20))
    weights[:300] = 0.7
    write_network(deployed(weights, range(20), 1.0, {}), tmp_path / "ne15.npz")
    code, out, _ = said(capsys, "complexity", "--device", device, "--network", str(tmp_path / "ne15.npz"), "--json")
    document = json.loads(out)
    quantities = document["quantities"]
    assert code == 0
    assert [layer["neurons"] for layer in document["network"]["layers"]] == [PIXELS, 20]
    assert quantities["dense_operations_per_execution"]["value"] == PIXELS + 2 * PIXELS * 20
    assert quantities["connection_sparsity"]["value"] == pytest.approx(PIXELS * 20 / (PIXELS + 2 * PIXELS * 20))
    assert quantities["model_execution_rate_hz"]["value"] == pytest.approx(1000.0)


def test_a_network_of_a_workload_states_its_costs(capsys: Capture) -> None:
    given = ("--workload", "primate-reaching", "--option", "reaches=20", "--option", "workload.animal=loco")
    code, out, _ = said(capsys, "complexity", "--device", "numpy-reaching", *given, "--json")
    assert code == 0
    assert json.loads(out)["quantities"]["parameters"]["value"] == 2 * 192 + 2


@needs_xylo
@pytest.mark.parametrize(("argv", "code", "text"), [
    (("complexity", "--device", f"{__file__}:open_solver"), 4, "test_complexity.py:open_solver --simulate, with"),
    (("complexity", "--device", "xylo", "--network", "absent.json"), 6, "cannot read the network file"),
    (("complexity", "--device", "xylo", "--network", "absent.nir"), 4, "dt_s"),
    (("network", "export", "--out", "a.json"), 3, "does not end in .nir"),
    (("network", "export", "--out", "no/such/folder/a.nir"), 7, "cannot write"),
])  # fmt: skip
def test_an_impossible_request_is_named(argv: tuple[str, ...], code: int, text: str, capsys: Capture) -> None:
    found, _, err = said(capsys, *argv)
    assert found == code
    assert text in err
    assert "Traceback" not in err
