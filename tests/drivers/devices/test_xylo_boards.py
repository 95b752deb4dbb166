"""The boards that the Xylo driver finds, the names of its calls, and the network that it sends."""

import ast
import importlib
import importlib.metadata
import inspect
from collections.abc import Callable
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from drivers.devices.xylo import device as xylo, rockpool_import
from drivers.devices.xylo.kit import AUDIO_2, AUDIO_3, Chip, Kit, configuration_of, only_one
from drivers.devices.xylo.networks.network import Network
from fixtures.instruments.xylo import ear, helpers, vendor as sim
from fixtures.instruments.xylo.bench import small_network
from fixtures.instruments.xylo.board import CHANNELS, SimBoard, Traits
from rig.errors import DataError, RigError, SetupError, UsageError
from tests.support.raised import Capture, Patch, raised

CHIPS = ("audio2", "audio3")


def kit(chip: str = "audio2", **traits: Any) -> Kit:
    return only_one(sim.SimVendor(SimBoard(Traits(chip, **traits))).kits(), None)


# ---- which board ----------------------------------------------------------------------------


@pytest.mark.parametrize(("chip", "expected"), [("audio2", AUDIO_2), ("audio3", AUDIO_3)])
def test_a_board_is_identified_by_its_package(chip: str, expected: Any, capsys: Capture) -> None:
    found = kit(chip)

    assert (found.chip, capsys.readouterr().out) == (expected, "")
    assert [found.rail_of[k] for k in sorted(found.rail_of)] == list(CHANNELS[chip])
    assert found.versions == {"samna": "0.0.0+simulated", "fxtree": "1.0.0", "unifirm": "2.0.0"}


def attached(*traits: Traits) -> Callable[[], list[Kit]]:
    return lambda: sim.SimVendor(*map(SimBoard, traits)).kits()


def held() -> list[Kit]:
    board = SimBoard(Traits())
    board.unplug()
    vendor = sim.SimVendor(board)
    vendor.find_xylo_hdks = board.check  # type: ignore[assignment]
    return vendor.kits()


@pytest.mark.parametrize(("boards", "options", "error", "text"), [
    (attached(), {}, SetupError, "no Xylo board found: samna lists none.*USB permissions, or add --simulate"),
    (attached(*map(Traits, CHIPS)), {}, UsageError,
     r"2 Xylo boards.*\(0: Xylo Audio 2, 1: Xylo Audio 3\).*--option board=0"),
    (attached(*map(Traits, CHIPS)), {"board": 2}, UsageError, r"board.*2.*Name one that is attached"),
    (attached(Traits(firmware=("0.11.4", "9.0.0"))), {}, SetupError,
     "too old.*must be upgraded.*FX3 0.11.5 and FPGA 1.1.3 for Xylo Audio 2"),
    (held, {}, SetupError, r"cannot be opened: Device is not open.*no other program holds it"),
])  # fmt: skip
def test_an_unusable_board_is_reported(
    boards: Any, options: dict[str, Any], error: type[RigError], text: str, monkeypatch: Patch
) -> None:
    monkeypatch.setattr(rockpool_import, "attached_boards", boards)

    raised(error, xylo.open_device, says=text, **options)


@pytest.mark.parametrize(("version", "text"), [
    (None, "samna, the driver of its vendor, is not installed"),
    ("0.48.6", "samna 0.48.6 is the stub.*pip uninstall samna"),
])  # fmt: skip
def test_without_samna_nothing_is_imported(version: str | None, text: str, monkeypatch: Patch) -> None:
    def found(name: str) -> str:
        if version is None:
            raise importlib.metadata.PackageNotFoundError(name)
        return version

    monkeypatch.setattr(rockpool_import, "has_real_samna", lambda: False)
    monkeypatch.setattr(importlib.metadata, "version", found)
    monkeypatch.setattr(importlib, "import_module", lambda name: pytest.fail(f"{name} was imported"))

    raised(SetupError, xylo.open_device, says=f"no Xylo board found.*{text}")


# ---- the vendor's signatures ----------------------------------------------------------------


def methods(name: str, simulated: type, *more: str) -> dict[str, Any]:
    return {f"{name}.{method}": getattr(simulated, method) for method in ("__init__", "evolve", *more)}


CONFIGURE = {"config_from_specification": helpers.config_from_specification}
SOURCES: dict[str, dict[str, Any]] = {
    "syns61201/xylo_samna.py": methods("XyloSamna", sim.XyloSamna2, "reset_state") | CONFIGURE,
    "syns65302/xylo_samna.py": methods("XyloSamna", sim.XyloSamna3, "reset_state") | CONFIGURE,
    "syns61201/xylo_monitor.py": methods("XyloMonitor", ear.XyloMonitor2),
    "syns65302/xylo_monitor.py": methods("XyloMonitor", ear.XyloMonitor3),
    "syns61201/xa2_devkit_utils.py": helpers.UTILS_2,
    "syns65302/xa3_devkit_utils.py": helpers.UTILS_3,
    "helper.py": {"find_xylo_hdks": sim.SimVendor().find_xylo_hdks},
}


def rockpool(place: str) -> ast.Module:
    found = find_spec("rockpool")  # finds it without importing it
    if found is None or found.origin is None:
        pytest.skip("needs neurorig[xylo]")
    return ast.parse((Path(found.origin).parent / "devices" / "xylo" / place).read_text())


def functions(tree: ast.Module) -> dict[str, list[str]]:
    """Return the argument names of each function and method; of several, those of the first, as for a property."""
    named: dict[str, list[str]] = {}
    scopes: list[tuple[str, Any]] = [("", tree)]
    scopes += [(f"{node.name}.", node) for node in tree.body if isinstance(node, ast.ClassDef)]
    for prefix, scope in scopes:
        for node in scope.body:
            if isinstance(node, ast.FunctionDef):
                named.setdefault(prefix + node.name, [a.arg for a in (*node.args.args, *node.args.kwonlyargs)])
    return named


@pytest.mark.parametrize("place", SOURCES)
def test_the_simulated_calls_have_the_vendor_arguments(place: str) -> None:
    own = functions(rockpool(place))

    for name, simulated in SOURCES[place].items():
        kinds = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
        given = [p.name for p in inspect.signature(simulated).parameters.values() if p.kind not in kinds]
        assert given == own[name], name


MONITOR = ("get_power_monitor", "get_source_node", "get_stop_watch", "get_events", "is_auto_power_measurement_active",
           "start_auto_power_measurement")  # fmt: skip


def of_chip(chip: Chip) -> set[str]:
    """Return what a vendor's class for this chip must read of power events and of the chip."""
    return {"channel", "value", "MeasurementChannels", chip.channels_in, chip.step, *chip.rails}


@pytest.mark.parametrize(("place", "names"), [
    ("syns61201/xa2_devkit_utils.py", {*MONITOR, "set_enable_value", "reset"}),
    ("syns65302/xa3_devkit_utils.py", {*MONITOR, "stop_auto_power_measurement", "start"}),
    ("helper.py", {"get_firmware_versions"}),
    ("syns61201/xylo_samna.py", of_chip(AUDIO_2)),
    ("syns65302/xylo_samna.py", of_chip(AUDIO_3)),
    ("syns65302/xylo_monitor.py", {"output_spikes", "Readout"}),
])  # fmt: skip
def test_the_vendor_uses_every_simulated_name(place: str, names: set[str]) -> None:
    assert names <= {node.attr for node in ast.walk(rockpool(place)) if isinstance(node, ast.Attribute)}


# ---- the network on the chip ----------------------------------------------------------------


def changed(network: Network, **values: Any) -> Network:
    return replace(network, specification={**network.specification, **values})


def test_bias_of_hidden_neurons_reaches_the_chip(monkeypatch: Patch) -> None:
    network = small_network()

    spec = configuration_of(kit(), network).spec

    assert np.array_equal(spec["bias"], network.specification["bias"])
    given: dict[str, Any] = {}
    own = kit()
    monkeypatch.setattr(own.package, "config_from_specification", lambda **spec: given.update(spec) or (None, True, ""))
    configuration_of(own, changed(network, bias=np.zeros(24, int)))
    assert (given["bias_hidden"], given["bias_out"], given["aliases"]) == (None, None, None)


@pytest.mark.parametrize(("chip", "values", "text"), [
    ("audio2", {"weights_out": np.ones((24, 9), int)}, "9 output neurons, of at most 1000 and 8"),
    ("audio3", {"weights_out": np.ones((993, 4), int)}, "993 hidden"),
    ("audio3", {"weights_in": np.ones((16, 150, 1), int)}, "after the first 128"),
    ("audio3", {"weights_out": np.ones((150, 4), int)}, "before the last 128"),
])  # fmt: skip
def test_a_network_that_the_chip_would_change_is_refused(chip: str, values: dict[str, Any], text: str) -> None:
    raised(DataError, configuration_of, kit(chip), changed(small_network(), **values), says=text)
