"""SoC Watch run as a meter. A script stands for it: it collects in time and writes its CSV when it is ended."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from drivers.meters.socwatch import meter as socwatch
from rig.conformance.device import check_meter
from rig.errors import MeterError, SetupError, UsageError
from rig.types import Meter

SCRIPT = """#!{python} -S
import signal, sys, time
argv = sys.argv[1:]
out = argv[argv.index("-o") + 1]
step = int(argv[argv.index("-n") + 1]) * 1e-3
fault = {fault!r}
if fault == "refuse":
    print("ERROR: the socwatch driver is not loaded"); sys.exit(3)
if fault == "mute":
    time.sleep(30)
ended = []
signal.signal(signal.SIGINT, lambda *a: ended.append(1))
if fault == "deaf":
    signal.signal(signal.SIGINT, signal.SIG_IGN)
print("Data collection started"); begun = time.monotonic()
while not ended and not (fault == "die" and time.monotonic() - begun > 0.1):
    time.sleep(0.002)
n = int((time.monotonic() - begun) / step)
rows = ["%.3f,%.3f,%.3f" % (1e3 * step * (k + 1), 5000 + k, 3000 + k) for k in range(n)]
head = ["\\ufeffIntel(R) SoC Watch for Linux", "", "Summary", "Component,Average Rate (mW),Total (mJ)", "a,1,2", ""]
if fault != "die":
    with open(out + "_trace.csv", "w", encoding="utf-8") as f:
        title = "Sample Time (ms),Package Power (mW),Core Power (mW)"
        f.write("\\n".join(head + ["Power over time", title] + rows + ["", "Legend, x"]))
sys.exit(1 if fault == "die" else 0)
"""


def program(folder: Path, fault: str = "") -> str:
    path = folder / "socwatch"
    path.write_text(SCRIPT.format(python=sys.executable, fault=fault), encoding="utf-8")
    path.chmod(0o755)
    return str(path)


def opened(folder: Path, fault: str = "", **options: Any) -> Meter:
    given: dict[str, Any] = {
        "path": program(folder, fault),
        "rails": "Package Power",
        "stamp": "end",
        "interval_s": 0.01,
    }
    return socwatch.open_meter(**(given | options))


def test_it_keeps_the_rules_of_a_meter(tmp_path: Path) -> None:
    check_meter(opened(tmp_path), seconds=0.3)


def test_its_rows_become_watts_between_their_stamps(tmp_path: Path) -> None:
    meter = opened(tmp_path, rails="Package Power,Core Power")
    bracket = meter.start()
    time.sleep(0.2)
    assert list(meter.read()) == []
    package, core = meter.stop()
    meter.close()
    assert bracket.tick == 0
    assert (package.rail, core.rail) == ("Package Power", "Core Power")
    n = len(package.value)
    assert n >= 15
    assert package.value == pytest.approx(5.0 + 1e-3 * np.arange(n))
    assert core.value == pytest.approx(3.0 + 1e-3 * np.arange(n))
    assert package.start_tick is not None
    assert package.end_tick is not None
    assert package.end_tick == pytest.approx(1e7 * (1 + np.arange(n)), abs=1)
    assert package.start_tick == pytest.approx(1e7 * np.arange(n), abs=1)


def test_its_interval_and_what_it_is_are_in_the_record(tmp_path: Path) -> None:
    info = opened(tmp_path).info()
    assert info.rails[0].rate_hz == pytest.approx(100.0)
    assert info.rails[0].accuracy is None
    assert info.details["interval_s"] == 0.01
    assert "model" in info.details["what"]


def test_a_program_that_dies_in_the_middle_is_told_once(tmp_path: Path) -> None:
    meter = opened(tmp_path, "die")
    meter.start()
    began_s = time.monotonic()
    with pytest.raises(MeterError, match="in the middle"):
        while time.monotonic() - began_s < 2.0:
            meter.read()
            time.sleep(0.01)
    assert time.monotonic() - began_s < 1.0
    assert list(meter.stop()) == []
    meter.close()


def test_a_program_that_refuses_is_quoted_with_its_remedy(tmp_path: Path) -> None:
    with pytest.raises(MeterError, match=r"driver is not loaded.*root"):
        opened(tmp_path, "refuse").start()


def test_a_program_that_never_begins_is_ended(tmp_path: Path) -> None:
    with pytest.raises(MeterError, match=r"within 0\.2 s"):
        opened(tmp_path, "mute", start_s=0.2).start()


def test_a_program_that_does_not_end_is_killed(tmp_path: Path) -> None:
    meter = opened(tmp_path, "deaf", stop_s=0.2)
    meter.start()
    with pytest.raises(MeterError, match="did not end"):
        meter.stop()
    meter.close()


def test_a_program_that_is_not_there_or_not_to_be_run_is_a_setup_error(tmp_path: Path) -> None:
    with pytest.raises(SetupError, match="not there"):
        opened(tmp_path, path=str(tmp_path / "none"))
    Path(program(tmp_path)).chmod(0o644)
    with pytest.raises(SetupError, match="executed"):
        socwatch.open_meter(path=str(tmp_path / "socwatch"), rails="Package Power", stamp="end")


def test_a_rail_that_the_trace_has_not_is_named(tmp_path: Path) -> None:
    meter = opened(tmp_path, rails="Uncore Power")
    meter.start()
    time.sleep(0.05)
    with pytest.raises(UsageError, match="Package Power"):
        meter.stop()
    meter.close()


@pytest.mark.parametrize(
    "options",
    [{"rails": ""}, {"rails": "a,a"}, {"stamp": ""}, {"energy": "some"}, {"interval_s": 0.0}, {"started": "("}],
)
def test_options_that_cannot_be_meant_are_refused(tmp_path: Path, options: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        opened(tmp_path, **options)
