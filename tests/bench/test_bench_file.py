"""``bench.toml``: names for a lab's devices and meters. Errors of a file and of opening name file, line and remedy."""

from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies as st

from rig.analysis.evaluate import evaluate
from rig.bench.bench_file import examine, find_bench, request_of
from rig.bench.bench_file_checks import factory_of
from rig.bench.bench_file_fields import lab_of, line_of, lines_of
from rig.bench.request import Request
from rig.errors import DataError, RigError, SetupError, UnknownNameError, UsageError
from rig.factories import build, options_of
from rig.recording.reader import open_run
from rig.session.locks import device_lock
from rig.session.measure import measure
from rig.session.setup import set_up_bench, which_of
from tests.support.benches import open_bench
from tests.support.paths import ROOT
from tests.support.raised import raised
from tests.support.scpi_bench import certificate

GOOD = """\
lab = "Room 12"
operator = "Ada"

[devices.board1]
driver = "mock"
options = { idle_w = 0.02, marks = false }
rails = ["core", "io"]

[devices.board2]
driver = "mock"

[meters.dmm]
driver = "scpi-dmm"
sees = "board1"
rail = "core"
supply_v = 3.3
calibration = "dmm.toml"
options = { address = "TCPIP::192.0.2.7::5025::SOCKET", range_max = 0.1 }

[meters.smu]
driver = "scpi-smu"
sees = "board1"
rail = "io"
options = { address = "TCPIP::192.0.2.8::5025::SOCKET", channel = 2 }

[meters.other]
driver = "mock"
sees = "board2"
"""


def written(folder: Path, text: str = GOOD, said: str = "") -> Path:
    (folder / "dmm.toml").write_text(said or certificate(), encoding="utf-8")
    path = folder / "bench.toml"
    path.write_text(text, encoding="utf-8")
    return path


def problem(path: Path) -> DataError:
    return raised(DataError, open_bench, path)


# ---- reading -------------------------------------------------------------------------------------------------------


def test_devices_meters_and_their_wiring_are_read(tmp_path: Path) -> None:
    bench = open_bench(written(tmp_path))

    assert (bench.lab, bench.operator) == ("Room 12", "Ada")
    assert list(bench.devices) == ["board1", "board2"]
    assert bench.devices["board1"].rails == ("core", "io")
    assert [(m.name, m.rails) for m in bench.meters_of("board1")] == [("dmm", ("core",)), ("smu", ("io",))]
    assert bench.meters["dmm"].supply_v == 3.3


def test_the_example_bench_file_is_valid() -> None:
    assert open_bench(ROOT / "examples" / "bench.toml").meters


@pytest.mark.parametrize("start", [b"", b"\xef\xbb\xbf"])
def test_windows_line_ends_and_byte_order_marks_are_read(tmp_path: Path, start: bytes) -> None:
    path = written(tmp_path)
    path.write_bytes(start + GOOD.replace('driver = "scpi-smu"', 'driver = "scpi-smuu"').replace("\n", "\r\n").encode())

    assert ":21: meters.smu.driver" in problem(path).message


# ---- what is wrong, by line ----------------------------------------------------------------------------------------

WRONG: Mapping[str, tuple[str, str, int, str, str]] = {
    "unknown key at the top": ("lab =", "labb =", 1, "labb is unknown here", "Did you mean lab?"),
    "unknown key of a device": ("rails =", "rail =", 7, "devices.board1.rail is unknown", "Did you mean rails?"),
    "a type at the top": ('"Ada"', "7", 2, "operator is 7", "Give a text"),
    "a temperature in kelvins": ("lab =", "ambient_temperature_c = 295.6 #", 1, "is 295.6", "Celsius, -60 to 150"),
    "a type in a meter": ("3.3", '"3.3"', 16, "supply_v is '3.3'", "Give a number of volts above zero"),
    "a voltage of nothing": ("3.3", "0", 16, "supply_v is 0", "above zero"),
    "a patience that no clock counts": ("3.3", "3.3\npatience_s = 1e300", 17, "patience_s is 1e+300", "3600 at most"),
    "a boot that never ends": ("rails =", "boot_s = 1e300\nrails =", 7, "boot_s is 1e+300", "from 0 to 3600"),
    "a truth for a number": ("3.3", "true", 16, "supply_v is True", "Give a number"),
    "rails twice": ('["core", "io"]', '["io", "io"]', 7, "rails is ['io', 'io']", "each once"),
    "no driver": ('driver = "scpi-smu"', "", 20, "meters.smu.driver is missing", "`rig list`"),
    "a driver nobody has": ("scpi-smu", "scpi-smuu", 21, "which is not a driver", "Did you mean scpi-smu or "),
    "a driver of a device": ("scpi-smu", "cpu-sa", 21, "'cpu-sa', which is not a driver", "`rig list`"),
    "a device nobody has": ('sees = "board2"', 'sees = "bord2"', 28, "no device has this name", "mean board2 or "),
    "a rail the device has not": ('rail = "io"', 'rail = "oi"', 23, "no such rail (line 7)", "Known: core, io"),
    "two meters on one rail": ('rail = "io"', 'rail = "core"', 23, "which dmm sees too", "a different rail"),
    "two meters on one rail, unsaid": ('rail = "io"\n', "", 20, "which dmm sees too", "a different rail"),
    "no such calibration": ('"dmm.toml"', '"dm.toml"', 17, "cannot be used: cannot read", "reference/calibration.md"),
    "an option nobody takes": ("address = ", "adress = ", 18, "adress is not an option of scpi-dmm", "mean address?"),
    "an option's type": ("channel = 2", 'channel = "2"', 24, "options.channel is '2'", "Give a whole number"),
    "an option's half": ("channel = 2", "channel = 2.5", 24, "options.channel is 2.5", "Give a whole number"),
    "a number for a truth": ("marks = false", "marks = 0", 6, "options.marks is 0", "Give true or false"),
    "nan for an option": ("idle_w = 0.02", "idle_w = nan", 6, "options.idle_w is nan", "Give a finite number"),
    "wiring among options": ("range_max = 0.1", 'rail = "core"', 18, "rail does not belong in", "in [meters.dmm]"),
    "a file nobody takes": ('sees = "board2"', 'calibration = "dmm.toml"', 28, "is not an option of mock", "Leave it"),
    "a meter that is no table": ("[meters.other]", "[meters]\nn = 3\n[meters.other]", 27, "n is 3", "as [meters.n]"),
    "a name that is none": ("[devices.board2]", '[devices."board 2"]', 9, "is not a name", "Use letters"),
    "the name of no meter": ("[meters.other]", "[meters.none]", 26, "meters.none is not a name", "means no meter"),
    "one name for two": ("[meters.other]", "[meters.board2]", 26, "has the name of a device (line 9)", "Rename one"),
    "the name of a driver": ("[meters.other]", "[meters.scpi-smu]", 26, "has the name of a driver", "another name"),
}  # fmt: skip


@pytest.mark.parametrize("case", WRONG)
def test_each_error_names_file_line_and_remedy(tmp_path: Path, case: str) -> None:
    before, after, line, says, remedy = WRONG[case]
    assert before in GOOD
    error = problem(path := written(tmp_path, GOOD.replace(before, after)))

    assert error.message.startswith(f"{path}:{line}: ")
    assert says in error.message
    assert remedy in error.remedy
    assert error.exit_code == DataError.exit_code


@pytest.mark.parametrize(("text", "line"), [
    (GOOD.replace("[meters.smu]", "[meters.smu"), 20), (GOOD + 'x = "a', 29), (GOOD + "x = [1,\n", 30),
])  # fmt: skip
def test_invalid_toml_is_named_by_its_line(tmp_path: Path, text: str, line: int) -> None:
    error = problem(path := written(tmp_path, text))

    assert error.message.startswith(f"{path}:{line}: it is not TOML")


def test_invalid_utf_8_is_named_by_its_line(tmp_path: Path) -> None:
    path = written(tmp_path)
    path.write_bytes(GOOD.encode().replace(b"Ada", b"\xff"))

    assert ":2: it is not UTF-8" in problem(path).message


@pytest.mark.parametrize(("said", "says"), [
    (certificate(until=-1), "has expired: dmm.toml is valid from"),
    (certificate(since=2, until=3), "is not valid yet: dmm.toml is valid from"),
    (certificate().replace('"34465A"', "3"), "cannot be used: calibration dmm.toml: instrument is 3"),
])  # fmt: skip
def test_a_calibration_must_be_readable_and_valid_today(tmp_path: Path, said: str, says: str) -> None:
    error = problem(written(tmp_path, said=said))

    assert f":17: meters.dmm.calibration {says}" in error.message
    assert ("in UTC today is" in error.message) == ("valid" in says)


def test_a_calibration_holds_on_its_last_day(tmp_path: Path) -> None:
    assert open_bench(written(tmp_path, said=certificate(since=0, until=0)))


def test_all_errors_are_found_in_line_order(tmp_path: Path) -> None:
    text = GOOD.replace("rails", "rale").replace("range_max", "rangemax").replace("channel", "chanel")
    _, problems = examine(path := written(tmp_path, text))

    assert [(p.entry, p.line) for p in problems] == [("board1", 7), ("dmm", 18), ("smu", 24)]
    path.write_text(GOOD.replace("rails", "rale").replace("sees", "seen"), encoding="utf-8")
    _, problems = examine(path)
    assert f"And {len(problems) - 1} more" in raised(DataError, request_of, path, "board1", (), ()).remedy


def test_a_missing_file_is_a_usage_error(tmp_path: Path) -> None:
    raised(UsageError, open_bench, tmp_path / "none.toml", says="cannot read the bench file")


# ---- lines ---------------------------------------------------------------------------------------------------------

KEYS = st.text("abc-_", min_size=1, max_size=4)
VALUES = st.sampled_from(["1", '"x # [y]"', '"""\n[no.table]\n"""', "[\n 1,\n 2, # [z]\n]", "{ p = 1, q = { r = 2 } }"])
STATEMENTS = st.lists(st.tuples(KEYS, VALUES, st.sampled_from(["", "# note\n", "\n\n"])), unique_by=lambda s: s[0])


@given(st.lists(st.tuples(KEYS, STATEMENTS), unique_by=lambda t: t[0]))
def test_every_key_is_found_on_its_line(tables: list[tuple[str, list[tuple[str, str, str]]]]) -> None:
    text, wanted = "", dict[tuple[str, ...], int]()
    for table, statements in tables:
        wanted[table,] = text.count("\n") + 1
        text += f"[{table}]\n"
        for key, value, between in statements:
            text += between
            wanted[table, key] = text.count("\n") + 1
            text += f"{key} = {value}\n"

    assert {where: line for where, line in lines_of(text).items() if len(where) <= 2} == wanted


def test_a_key_inside_a_table_in_one_line_is_on_that_line_and_one_that_is_missing_on_that_of_its_table() -> None:
    assert lines_of("[a]\n\nb = { c.d = 1 }\n")["a", "b", "c", "d"] == 3
    assert line_of(lines_of("\n[a]\nb = 1\n"), ("a", "c", "d")) == 2


# ---- finding the file ----------------------------------------------------------------------------------------------


def test_the_argument_precedes_variable_and_folder(here: Path) -> None:
    assert find_bench(None, {}) is None
    written(here)
    one, two = here / "one.toml", here / "two.toml"
    one.touch()
    two.touch()

    assert find_bench(None, {}) == Path("bench.toml")
    assert find_bench(None, {"RIG_BENCH": str(one)}) == one
    assert find_bench(two, {"RIG_BENCH": str(one)}) == two


def test_a_named_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"RIG_BENCH names .*none\.toml, which is not a file"):
        find_bench(None, {"RIG_BENCH": str(tmp_path / "none.toml")})


# ---- what is asked of a run ----------------------------------------------------------------------------------------


def test_a_device_brings_its_options_and_meters(tmp_path: Path) -> None:
    chosen = request_of(written(tmp_path), "board1", (), ())

    assert (chosen.device, chosen.meters) == ("mock", ("scpi-dmm", "scpi-smu"))
    assert set(chosen.options) == {
        "device.idle_w=0.02", "device.marks=false",
        "meter.address=TCPIP::192.0.2.7::5025::SOCKET", "meter.range_max=0.1", "meter.rail=core",
        "meter.supply_v=3.3", f"meter.calibration={tmp_path / 'dmm.toml'}", "meter.name=dmm",
        "meter1.address=TCPIP::192.0.2.8::5025::SOCKET", "meter1.channel=2", "meter1.rail=io", "meter1.name=smu",
    }  # fmt: skip


def test_named_meters_replace_the_wired_ones(tmp_path: Path) -> None:
    path = written(tmp_path)

    assert request_of(path, "board1", ("smu",), ()).meters == ("scpi-smu",)
    assert request_of(path, "board1", ("none",), ()).meters == ("none",)
    assert request_of(path, "board1", ("mock", "dmm"), ()).options[-1].startswith("meter1.")


def test_command_line_options_come_last(tmp_path: Path) -> None:
    options = request_of(written(tmp_path), "board1", (), ("smu.channel=3", "board1.idle_w=1", "samples=4")).options

    assert options[-3:] == ("meter1.channel=3", "device.idle_w=1", "samples=4")


def test_a_meter_of_another_device_or_one_named_twice_is_refused(tmp_path: Path) -> None:
    path = written(tmp_path)
    raised(UsageError, request_of, path, "board2", ("dmm",), (), says="meter dmm sees board1 and not board2")
    raised(UsageError, request_of, path, "board1", ("dmm", "dmm"), (), says="dmm is named twice")


@pytest.mark.parametrize(("device", "meters"), [("bord1", ()), ("board1", ("dm",)), ("mock", ("dm",)), ("dmm", ())])
def test_an_unknown_name_is_answered_with_known_ones(tmp_path: Path, device: str, meters: tuple[str, ...]) -> None:
    caught = raised(UnknownNameError, request_of, written(tmp_path), device, meters, ())

    own = "dmm" if meters else "board1"
    assert {own, "mock"} <= set(caught.known)


@given(st.lists(st.sampled_from(["mock", "xylo-monitor", "none"])), st.lists(st.text("ab=.", max_size=5)))
def test_unknown_names_pass_through_unchanged(
    tmp_path_factory: pytest.TempPathFactory, meters: list[str], options: list[str]
) -> None:
    path = written(tmp_path_factory.mktemp("bench"))

    for bench in (path, None):
        assert request_of(bench, "mock", meters, options) == Request("mock", tuple(meters), options=tuple(options))


def test_an_expired_calibration_stops_only_its_meter(tmp_path: Path) -> None:
    path = written(tmp_path, said=certificate(until=-1))

    assert request_of(path, "board2", (), ()).meters == ("mock",)
    assert request_of(path, "board1", ("smu",), ()).meters == ("scpi-smu",)
    raised(DataError, request_of, path, "board1", (), (), says="has expired")


def test_an_unreadable_entry_stops_every_use(tmp_path: Path) -> None:
    """A meter without a driver may be one that sees this device."""
    path = written(tmp_path, GOOD.replace('driver = "scpi-smu"', 'drivr = "scpi-smu"'))

    raised(DataError, request_of, path, "board1", (), (), says=r"meters\.smu\.driver is missing")


def test_driver_files_are_relative_to_the_bench_file(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("def open_device(*, size: int = 1): ...\n", encoding="utf-8")
    path = written(tmp_path, '[devices.mine]\ndriver = "mine.py:open_device"\noptions = { size = 2 }\n')

    chosen = request_of(path, "mine", (), ())
    assert chosen.device == f"{tmp_path / 'mine.py'}:open_device"
    assert chosen.options == ("device.size=2",)


# ---- a run -----------------------------------------------------------------------------------------------------------

SIMULATED = """\
lab = "Room 12"

[devices.sim]
driver = "mock"
options = { idle_w = 0.5, inference_s = 0.02 }

[meters.fast]
driver = "mock"
sees = "sim"
options = { rate_hz = 2000.0 }
"""


def asked(chosen: Request, **more: Any) -> Request:
    return replace(chosen, options=(*chosen.options, "samples=2", "idle_s=0.1"), **more)


def test_a_run_uses_the_options_of_the_file(tmp_path: Path) -> None:
    with set_up_bench(asked(request_of(written(tmp_path, SIMULATED), "sim", (), ()))) as setup:
        info = setup.bench.meters[0].info()
        profile = setup.bench.device.info().details["power_profile"]

    assert (info.name, info.rails[0].rate_hz) == ("fast", 2000.0)
    assert profile["idle_w"] == {"core": 0.5}


@pytest.mark.parametrize(("rails", "said"), [("core", ""), ("coer", "has no such rail .*sim.*Did you mean coer")])
def test_a_meter_rail_outside_the_device_is_refused(rails: str, said: str, tmp_path: Path) -> None:
    """The file names no rail for the meter: its rails are only known when it is open."""
    text = SIMULATED.replace("[devices.sim]", f'[devices.sim]\nrails = ["{rails}"]')
    request = asked(request_of(written(tmp_path, text), "sim", (), ()))
    with pytest.raises(SetupError, match=said) if said else nullcontext(), set_up_bench(request):
        pass


def test_lab_and_operator_are_read_from_stored_text() -> None:
    warm = "ambient_temperature_c = 22.5\n" + GOOD
    assert lab_of(warm.encode()) == {"lab": "Room 12", "operator": "Ada", "ambient_temperature_c": 22.5}
    assert lab_of(b"lab = 3\n") == lab_of(b"no toml") == lab_of(b"\xff") == {}


@given(st.text("[]{}=.\"'abdevicsmtr\n#1, ", max_size=60))
def test_any_text_is_a_bench_file_or_a_named_error(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    path = written(tmp_path_factory.mktemp("bench"), text)
    try:
        open_bench(path)
    except RigError as error:
        assert error.message.startswith(f"{path}:")
        assert error.remedy


def test_a_run_stores_the_bench_file(tmp_path: Path) -> None:
    path = written(tmp_path, 'operator = "Ada"\n' + SIMULATED)
    chosen = request_of(path, "sim", (), ())
    named, nameless = (
        measure(asked(chosen, artifacts=kept, mode="together", out=tmp_path / str(len(kept))), quiet=True)
        for kept in (chosen.artifacts, {})
    )

    assert (named / "artifacts" / "bench.toml").read_bytes() == path.read_bytes()
    assert "artifacts/bench.toml" in (named / "events.jsonl").read_text(encoding="utf-8").splitlines()[-1]
    said = evaluate(open_run(named)).to_json()
    assert (said["lab"], said["operator"]) == ("Room 12", "Ada")
    assert not {"lab", "operator"} & set(evaluate(open_run(nameless)).to_json())


def test_a_run_keeps_the_calibration_with_which_its_meter_was_opened(tmp_path: Path) -> None:
    source = (
        "from fixtures.bench import mock_meter\ndef own(bench, *, calibration): return mock_meter.open_meter(bench)"
    )
    (tmp_path / "m.py").write_text(source)
    own = '[meters.own]\ndriver = "m.py:own"\nsees = "sim"\ncalibration = "dmm.toml"\n'
    begun = asked(request_of(written(tmp_path, SIMULATED + own), "sim", ("own",), ()), mode="together")
    (tmp_path / "dmm.toml").write_text("renewed")

    path = measure(replace(begun, out=tmp_path / "resumed"), quiet=True)
    assert (path / "artifacts" / "calibration-meter.toml").read_text() == "renewed"


# ---- what is impossible, and what does not open ------------------------------------------------

SHARED_PORTS = """\
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


def test_shared_supplies_servers_and_boards_are_accepted(tmp_path: Path) -> None:
    assert len(open_bench(written(tmp_path, SHARED_PORTS)).meters) == 5


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
def test_impossible_wiring_is_found_early(before: str, after: str, says: str, remedy: str, tmp_path: Path) -> None:
    assert before in SHARED_PORTS
    _, problems = examine(written(tmp_path, SHARED_PORTS.replace(before, after, 1)))
    (problem,) = problems
    assert says in problem.error.message
    assert remedy.removeprefix("an ") in problem.error.remedy


def test_a_default_rate_of_zero_is_accepted(tmp_path: Path) -> None:
    assert open_bench(written(tmp_path, SHARED_PORTS.replace('instrument = "A"', 'instrument = "A", rate_hz = 0.0')))


def test_an_option_that_the_driver_misses_is_named_by_file_and_line(tmp_path: Path) -> None:
    """Amperes need ``supply_v``, and the file has none: only the driver knows."""
    path = written(tmp_path, SHARED_PORTS.replace("supply_v = 3.3\n", "", 1))
    bench = open_bench(path)
    kit = factory_of(bench, bench.meters["kit"])
    assert raised(RigError, build, kit, {}, {"port": "/dev/ttyACM9"}).message.startswith(f"{path}:21: meters.kit: ")
    assert set(options_of(kit)) >= {"port", "supply_v"}


DRIVER = """
from rig.errors import SetupError
def open_device(*, port: str = "x", size: int = 1):
    raise SetupError("it is not there", field="port", example="/dev/ttyACM0")
"""


def test_an_open_error_names_file_and_line(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(DRIVER)
    path = written(tmp_path, '[devices.b]\ndriver = "own.py:open_device"\n[devices.b.options]\nsize = 2\nport = "y"\n')
    with pytest.raises(SetupError) as caught, set_up_bench(request_of(path, "b", ("none",), ())):
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


def test_a_device_is_known_by_its_place_stated_or_by_default_or_else_by_its_driver_alone(tmp_path: Path) -> None:
    assert which_of("mock", ["idle_w=3"]) == ""
    (tmp_path / "own.py").write_text('def open_device(*, host: str = "lab", level: int = 1): ...\n')
    own = f"{tmp_path / 'own.py'}:open_device"
    assert which_of(own, []) == which_of(own, ["host=lab", "level=2"]) == "host=lab"


@pytest.mark.parametrize(("which", "says"), [
    ("port=a", r"port=a\) is in use"), ("", "of one driver are told apart by its options `port` and `address`"),
])  # fmt: skip
def test_distinct_devices_do_not_lock_each_other(which: str, says: str) -> None:
    one = device_lock("made-up", which=which)
    with one, device_lock("made-up", False, which="port=b"), pytest.raises(SetupError, match=says):
        device_lock("made-up", wait=False, which=which).__enter__()
