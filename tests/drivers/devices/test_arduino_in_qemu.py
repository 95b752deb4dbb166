"""The driver runs the firmware in QEMU: its answers and times are right, and QEMU ends with it.

QEMU's time counts instructions, so these tests do not need an idle host. Sending a slice takes half a second of
a processor.
"""

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import numpy as np
import psutil
import pytest

from drivers.devices.arduino import emulator
from drivers.devices.arduino.device import open_device
from drivers.devices.arduino.emulator import Emulator
from drivers.devices.arduino.mfe import features, pcm16
from drivers.devices.arduino.quantised import Quantised, header, read_network
from drivers.devices.arduino.toolchain import DEFAULT_NETWORK, Firmware, build
from fixtures.bench.true_power import SimPlant, open_plant
from rig.conformance.device import check_device
from rig.errors import DeviceError, SetupError
from rig.types import Device, Sample
from scenarios.workloads.asc.workload import open_workload
from tests.support.remote_workers import answer

pytestmark = pytest.mark.skipif(
    not (shutil.which("arm-none-eabi-gcc") and shutil.which("qemu-system-arm")),
    reason="gcc-arm-none-eabi or qemu-system-arm is not installed: the firmware was NOT run",
)


@pytest.fixture(scope="module", autouse=True)
def built_once(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Compile the firmware with the shipped network once in this file, and copy it for each QEMU."""
    made = build(tmp_path_factory.mktemp("firmware"))

    def copied(out: Path, network: Path | None = None) -> Firmware:
        return replace(made, elf=Path(shutil.copy(made.elf, out))) if network is None else build(out, network)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(emulator, "build", copied)
        yield


@pytest.fixture(scope="module")
def bench() -> Iterator[tuple[Device, SimPlant]]:
    """One simulated board for all tests of this file that need no other, on a bench in virtual time."""
    plant = open_plant()
    with closing(open_device(plant, simulate=True)) as device:
        yield device, plant


def processes(running: Emulator) -> list[psutil.Process]:
    """Return the shell that watches QEMU, and QEMU."""
    shell = psutil.Process(running._shell.pid)
    return [shell, *shell.children()]


def scores(network: Quantised, sample: Sample) -> list[float]:
    """Return the scores of the same network in Python."""
    return [float(s) for s in network.scores(features(pcm16(np.asarray(sample.payload)))[None])[0]]


def test_the_board_keeps_every_rule() -> None:
    plant = open_plant()
    rules = check_device(open_device(plant, simulate=True), open_workload(samples=2).samples, clock=plant.clock)
    assert {"repeat.executions", "repeat.spans", "timer.rate", "span.clock", "info.network"} <= set(rules)


def test_the_same_work_takes_the_same_time_in_any_qemu(bench: tuple[Device, SimPlant]) -> None:
    sample = open_workload(samples=1).samples[0]
    with closing(open_device(open_plant(), simulate=True)) as other:
        lasted = [[s.off_tick - s.on_tick for s in answer(each, sample, times=10).spans] for each in (bench[0], other)]
    assert lasted[0] == pytest.approx(lasted[1], rel=1e-5) and min(lasted[0]) > 1e5


def test_the_plant_is_busy_for_the_time_the_board_counted(bench: tuple[Device, SimPlant]) -> None:
    device, plant = bench
    before = len(plant.activity)
    reply = answer(device, open_workload(samples=1).samples[0], times=2)
    stamped = [(s.phase, s.off_tick - s.on_tick) for s in reply.spans]
    assert stamped == [(phase, (off - on) // 1000) for phase, on, off in plant.activity[before:]]


def test_a_recording_states_that_time_counts_instructions(bench: tuple[Device, SimPlant]) -> None:
    info = bench[0].info()
    assert info.mode == "simulator" and "counts instructions" in info.details["time"]
    assert "assumed" in info.details["power_profile"]["assumption"]
    assert 0 < info.details["ram_bytes"] < 256 << 10 and 0 < info.details["flash_bytes"] < 1 << 20
    assert info.network is not None and f"{info.details['flash_bytes']} bytes of flash" in info.network.convention


# ---- how it ends ----------------------------------------------------------------------------


def test_qemu_ends_when_the_board_is_closed() -> None:
    running = Emulator()
    both, folder = processes(running), running.firmware.elf.parent
    running.close()
    running.close()
    assert not psutil.wait_procs(both, 30.0)[1] and not folder.exists()


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_qemu_ends_with_the_process_that_started_it(how: signal.Signals) -> None:
    code = (
        "import time; from drivers.devices.arduino.emulator import Emulator\n"
        "print(Emulator()._shell.pid, flush=True); time.sleep(60)"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as owner:
        assert owner.stdout is not None
        shell = psutil.Process(int(owner.stdout.readline()))
        both = [shell, *shell.children()]
        os.kill(owner.pid, how)
        assert len(both) == 2 and not psutil.wait_procs(both, 30.0)[1]


def test_a_qemu_that_dies_is_reported() -> None:
    with closing(Emulator()) as running:
        processes(running)[1].kill()
        with pytest.raises(DeviceError, match="is gone"):
            while True:
                running.line.line(float("inf"))


def test_an_error_of_qemu_at_start_is_reported_verbatim(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "qemu-system-arm"
    program.write_text("#!/bin/sh\necho no such machine >&2\nexit 1\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    began_s = time.monotonic()
    with pytest.raises(SetupError, match="QEMU has ended: no such machine"):
        Emulator()
    assert time.monotonic() - began_s < emulator.START_S


def test_a_shell_that_hangs_is_killed_with_qemu(monkeypatch: pytest.MonkeyPatch) -> None:
    running = Emulator()
    both = processes(running)
    both[0].suspend()
    monkeypatch.setattr(emulator, "START_S", 0.1)
    running.close()
    assert not psutil.wait_procs(both, 30.0)[1] and not running.firmware.elf.parent.exists()


def test_a_custom_network_is_built_in_and_named_by_digest(tmp_path: Path) -> None:
    shipped, own = read_network(DEFAULT_NETWORK).network, tmp_path / "own.h"
    other = replace(shipped, dense_bias=shipped.dense_bias[::-1].copy())
    own.write_text(header(other), encoding="utf-8")
    with closing(open_device(open_plant(), simulate=True, network=str(own))) as device:
        sample = open_workload(samples=1).samples[0]
        assert answer(device, sample).output["scores"] == scores(other, sample)
        assert device.info().artifacts["network"] == read_network(own).sha256
