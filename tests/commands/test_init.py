"""`rig init` writes a bench file of what is connected."""

import json
from pathlib import Path
from types import SimpleNamespace

import pytest

from drivers.meters import rapl
from drivers.meters.ppk2 import commands
from fixtures.bench.live_plant import LivePlant
from fixtures.instruments.powercap_tree import PowercapTree
from fixtures.instruments.scpi_dmm_sim import TruevoltSim
from fixtures.instruments.scpi_server import ScpiServer
from rig.bench.bench_file import examine
from rig.bench.connected import Connected, Found, find
from rig.commands.init import bench_text
from rig.commands.shell.main import main
from tests.support.powercap_zones import DESKTOP


def test_found_instruments_make_a_valid_bench_file(tmp_path: Path) -> None:
    found = [
        Found("meters", "nvml", (Connected("H100", {"gpus": "GPU-1"}), Connected("H100", {"gpus": "GPU-2"}))),
        Found("meters", "ppk2", (Connected('a "kit"\nof two lines', {"port": "/dev/ttyACM0"}),)),
        Found("devices", "mlperf-tiny", (Connected("Nano 33 BLE", {"port": "/dev/ttyACM1"}, sure=False),)),
    ]
    (path := tmp_path / "bench.toml").write_text(bench_text(found))
    bench, problems = examine(path)

    assert not problems
    assert [*bench.meters] == ["nvml", "nvml-2", "ppk2"]
    assert bench.meters["nvml-2"].options == {"gpus": "GPU-2"}
    assert not bench.devices


def test_the_written_bench_file_can_be_read(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(("init", "--json")) == 0
    said = json.loads(capsys.readouterr().out)

    assert said["file"] == "bench.toml"
    assert not examine(here / "bench.toml")[1]


def test_an_instrument_at_an_address_is_found_by_one_driver() -> None:
    pytest.importorskip("pyvisa_py", reason="extra visa is not installed")
    with ScpiServer(TruevoltSim(LivePlant())) as server:
        found = {each.driver: each.items for each in find([server.address])}

    assert [item.options for item in found["scpi-dmm"]] == [{"address": server.address}]
    assert "34465A" in found["scpi-dmm"][0].what
    assert not found.get("scpi-smu")


def test_a_silent_address_is_kept_in_a_comment(tmp_path: Path) -> None:
    pytest.importorskip("pyvisa_py", reason="extra visa is not installed")
    address = "TCPIP::127.0.0.1::1::SOCKET"
    (path := tmp_path / "bench.toml").write_text(text := bench_text(list(find([address]))))

    assert f'# options = {{ address = "{address}" }}' in text
    assert "no answer: " in text
    assert not examine(path)[0].meters


def test_a_kit_with_two_ports_is_one_kit(monkeypatch: pytest.MonkeyPatch) -> None:
    list_ports = pytest.importorskip("serial.tools.list_ports", reason="extra serial is not installed")

    def port(device: str, product: str | None, serial: str | None) -> SimpleNamespace:
        return SimpleNamespace(device=device, product=product, serial_number=serial, description="")

    ports = [port("/dev/ttyACM1", "PPK2", "F21"), port("/dev/ttyACM0", "PPK2", "F21"), port("/dev/ttyS0", None, None)]
    monkeypatch.setattr(list_ports, "comports", lambda: ports)

    assert commands.ports() == {"F21": "/dev/ttyACM0"}


def test_the_counters_of_a_processor_are_one_meter(tmp_path: Path) -> None:
    assert not list(rapl.connected((), str(tmp_path)))
    plant = LivePlant()
    plant.install({"core": 0.1}, {})
    with PowercapTree(tmp_path, plant, DESKTOP):
        assert "package-0" in next(iter(rapl.connected((), str(tmp_path)))).what
