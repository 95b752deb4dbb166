"""A meter that feeds the device is opened before it, and closed after it."""

from pathlib import Path

import pytest

from rig.bench.bench_file import request_of
from rig.bench.power_up import BOOT_S
from rig.bench.request import Request
from rig.doctor.examination import Settings, diagnose
from rig.errors import DataError
from rig.session.setup import set_up_bench

DRIVER = """
from dataclasses import replace
from fixtures.bench.mock_device import open_device
from fixtures.bench.mock_meter import open_meter as mock_meter

FEEDS = {feeds}

def noted(driver, log, who):
    def note(what):
        with open(log, "a") as text:
            text.write(f"{{what}} {{who}}\\n")
    def close():
        note("close")
        inner()
    inner, driver.close = driver.close, close
    note("open")
    return driver

def open_board(bench, *, log: str):
    with open(log, "a") as text:
        text.write(f"{{bench.clock.now_ns()}}\\n")
    return noted(open_device(bench), log, "board")

def open_meter(bench, *, log: str, name: str = "meter"):
    meter = mock_meter(bench, name=name, rate_hz=1000.0)
    info = meter.info()
    rails = tuple(replace(rail, name=f"{{rail.name}}-{{name}}") for rail in info.rails)
    meter.info = lambda: replace(info, rails=rails)
    return noted(meter, log, name)
"""
BENCH = """
[devices.board]
driver = "plain.py:open_board"
options = {{ log = "{log}" }}
{boot}

[meters.thermometer]
driver = "plain.py:open_meter"
sees = "board"
options = {{ log = "{log}" }}

[meters.feeder]
driver = "{driver}"
sees = "board"
options = {{ log = "{log}" }}
{feeds}
"""


def bench(folder: Path, driver: str, feeds: str = "", boot: str = "") -> Path:
    for name, does in (("plain.py", False), ("feeding.py", True)):
        (folder / name).write_text(DRIVER.format(feeds=does), encoding="utf-8")
    path = folder / "bench.toml"
    path.write_text(BENCH.format(log=folder / "log", driver=f"{driver}.py:open_meter", feeds=feeds, boot=boot))
    return path


def noted(folder: Path) -> list[str]:
    return [line for line in (folder / "log").read_text().splitlines() if not line.isdigit()]


def opened_at_s(folder: Path) -> float:
    return min(int(line) for line in (folder / "log").read_text().splitlines() if line.isdigit()) * 1e-9


def request(path: Path) -> Request:
    return request_of(path, "board", (), ())


@pytest.mark.parametrize(("driver", "feeds", "first"), [
    ("feeding", "", "feeder"), ("plain", "feeds = true", "feeder"), ("feeding", "feeds = false", "board"),
    ("plain", "", "board"),
])  # fmt: skip
def test_a_feeding_meter_opens_first_and_closes_last(here: Path, driver: str, feeds: str, first: str) -> None:
    with set_up_bench(request(bench(here, driver, feeds))) as setup:
        names = [meter.info().name for meter in setup.bench.meters]
    order = ["feeder", "board", "thermometer"] if first == "feeder" else ["board", "thermometer", "feeder"]
    assert names == ["thermometer", "feeder"]
    assert noted(here) == [f"open {who}" for who in order] + [f"close {who}" for who in reversed(order)]


def test_a_fed_board_has_time_to_boot(here: Path) -> None:
    at_s = {}
    for name, feeds, boot in (("own", "", ""), ("fed", "feeds = true", ""), ("slow", "feeds = true", "boot_s = 7.5")):
        (here / "log").unlink(missing_ok=True)
        with set_up_bench(request(bench(here, "plain", feeds, boot))):
            at_s[name] = opened_at_s(here)
    assert at_s["fed"] - at_s["own"] == pytest.approx(BOOT_S, abs=0.1)
    assert at_s["slow"] - at_s["own"] == pytest.approx(7.5, abs=0.1)


def test_the_doctor_uses_and_shows_the_order(here: Path) -> None:
    found = list(diagnose([], bench(here, "feeding"), Settings(seconds=0.05)))
    order = ["feeder", "board", "thermometer"]
    told = "opened in this order: feeder (feeds it), board, thermometer"
    assert [f.text for f in found if f.topic == "power"] == [told]
    assert noted(here) == [f"open {who}" for who in order] + [f"close {who}" for who in reversed(order)]
    assert {f.item for f in found if f.topic == "identity"} == set(order)


def test_feeds_is_true_or_false(here: Path) -> None:
    with pytest.raises(DataError, match=r"meters\.feeder\.feeds is 'yes'"):
        request(bench(here, "plain", "feeds = 'yes'"))
