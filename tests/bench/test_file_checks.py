"""Impossible values in a bench file, two entries for one instrument, and errors of opening with their line."""

from __future__ import annotations

from pathlib import Path

import pytest

from rig.bench.bench_file import examine, request_of
from rig.bench.check import factory_of
from rig.errors import RigError, SetupError, UsageError
from rig.factories import build, options_of
from rig.session.locks import device_lock
from rig.session.setup import Request, set_up_bench, which_of
from tests.support.benches import open_bench
from tests.support.raised import raised

GOOD = """\
[devices.board]
driver = "mlperf-tiny"
options = { port = "/dev/ttyACM7", labels = "a,b" }

[devices.same-board]
driver = "mlperf-tiny"
options = { port = "/dev/ttyACM7", labels = "c,d" }

[meters.one]
driver = "scpi-smu"
sees = "board"
rail = "core"
options = { address = "TCPIP::192.0.2.8::5025::SOCKET", channel = 1 }

[meters.two]
driver = "scpi-smu"
sees = "board"
rail = "io"
options = { address = "TCPIP::192.0.2.8::5025::SOCKET", channel = 2 }

[meters.kit]
driver = "ppk2"
sees = "same-board"
supply_v = 3.3
options = { port = "/dev/ttyACM9" }

[meters.arc]
driver = "otii"
supply_v = 3.3
options = { instrument = "A" }

[meters.arc2]
driver = "otii"
supply_v = 3.3
options = { instrument = "B" }
"""


def written(folder: Path, text: str = GOOD) -> Path:
    (folder / "bench.toml").write_text(text, encoding="utf-8")
    return folder / "bench.toml"


def test_outputs_of_one_supply_instruments_of_one_server_and_one_board_twice_are_let_be(tmp_path: Path) -> None:
    assert len(open_bench(written(tmp_path)).meters) == 5


@pytest.mark.parametrize(("before", "after", "says", "remedy"), [
    ("channel = 2", "channel = 1", ":19: meters.two.options.address is tcpip::192.0.2.8", "an address"),
    (", channel = 2", "", "which one uses too (line 9)", "channel"),
    ('"/dev/ttyACM9"', '"/dev/ttyACM7"', ":25: meters.kit.options.port is /dev/ttyACM7, which board", "its own"),
    ('instrument = "B"', 'instrument = "A"', "arc2.options.port is 127.0.0.1:1905, which arc uses", "its own"),
    ("supply_v = 3.3", "supply_v = 1800", ":24: meters.kit.supply_v is 1800", "Give volts, not millivolts"),
    ("channel = 1", "rate_hz = 0", "options.rate_hz is 0", "above zero"),
    ("channel = 1", "range_max = -1", "options.range_max is -1", "above zero"),
    ("channel = 1", "timeout_s = 0.0", "options.timeout_s is 0.0", "above zero"),
    ("channel = 1", "temperature_c = 400", "options.temperature_c is 400", "degrees Celsius, -60 to 150"),
    ('"TCPIP::192.0.2.8::5025::SOCKET", channel = 1', '""', ":13: meters.one.options.address is ''", "the address"),
])  # fmt: skip
def test_what_is_impossible_is_found_unopened(before: str, after: str, says: str, remedy: str, tmp_path: Path) -> None:
    assert before in GOOD
    _, problems = examine(written(tmp_path, GOOD.replace(before, after, 1)))
    (problem,) = problems
    assert says in problem.error.message
    assert remedy.removeprefix("an ") in problem.error.remedy


def test_a_rate_of_nought_is_let_be_where_it_is_the_drivers_default(tmp_path: Path) -> None:
    assert open_bench(written(tmp_path, GOOD.replace('instrument = "A"', 'instrument = "A", rate_hz = 0.0')))


def test_an_option_that_the_driver_asks_for_on_opening_is_named_by_file_and_line(tmp_path: Path) -> None:
    """Amperes need ``supply_v``, and the file has none: only the driver knows."""
    path = written(tmp_path, GOOD.replace("supply_v = 3.3\n", "", 1))
    bench = open_bench(path)
    kit = factory_of(bench, bench.meters["kit"])
    assert raised(RigError, build, kit, {}, {"port": "/dev/ttyACM9"}).message.startswith(f"{path}:21: meters.kit: ")
    assert set(options_of(kit)) >= {"port", "supply_v"}


DRIVER = """
from rig.errors import SetupError
def open_device(*, port: str = "x", size: int = 1):
    raise SetupError("it is not there", field="port", example="/dev/ttyACM0")
"""


def test_a_measurement_names_file_and_line_of_what_does_not_open(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(DRIVER)
    path = written(tmp_path, '[devices.b]\ndriver = "own.py:open_device"\n[devices.b.options]\nsize = 2\nport = "y"\n')
    with pytest.raises(SetupError) as caught, set_up_bench(Request(**vars(request_of(path, "b", ("none",), ())))):
        pass
    assert caught.value.message == f"{path}:5: devices.b.options.port: it is not there"
    assert caught.value.remedy == 'Write port = "/dev/ttyACM0" among the options of [devices.b]'


def test_a_name_known_twice_is_listed_once(tmp_path: Path) -> None:
    path = written(tmp_path, '[devices.mock]\ndriver = "mock"\n')
    caught = raised(UsageError, request_of, path, "mok", (), ())
    assert caught.remedy.partition("Did you mean ")[2].partition("? ")[0].split(" or ").count("mock") == 1


# ---- which of several devices of one driver --------------------------------------------------------------------------


def test_two_boards_of_one_driver_are_two_devices() -> None:
    one, two = (which_of("mlperf-tiny", [f"device.port=/dev/none{k}", "labels=a", "samples=3"]) for k in (1, 2))
    assert (one, two) == ("port=/dev/none1", "port=/dev/none2")
    assert which_of("mlperf-tiny", ["port=/dev/none1", "meter.port=/dev/none9"]) == one


def test_a_link_to_a_port_is_the_port(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.path.realpath", {"/dev/serial/by-id/x": "/dev/ttyACM3"}.__getitem__)
    assert which_of("mlperf-tiny", ["port=/dev/serial/by-id/x"]) == "port=/dev/ttyACM3"


def test_a_device_without_a_place_is_known_by_its_driver_alone() -> None:
    assert which_of("mock", ["idle_w=3"]) == ""


def test_a_default_is_as_good_as_what_is_written(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text('def open_device(*, host: str = "lab", level: int = 1): ...\n')
    own = f"{tmp_path / 'own.py'}:open_device"
    assert which_of(own, []) == which_of(own, ["host=lab", "level=2"]) == "host=lab"


def test_devices_that_are_told_apart_do_not_lock_each_other_out() -> None:
    one = device_lock("made-up", which="port=a")
    with one, device_lock("made-up", False, which="port=b"), pytest.raises(SetupError, match=r"port=a\) is in use"):
        device_lock("made-up", wait=False, which="port=a").__enter__()


def test_a_lock_of_a_whole_driver_says_what_tells_its_devices_apart() -> None:
    says = "Devices of one driver are told apart by its options `port` and `address`"
    with device_lock("made-up"), pytest.raises(SetupError, match=says):
        device_lock("made-up", wait=False).__enter__()
