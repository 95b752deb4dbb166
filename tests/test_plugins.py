"""A factory's signature is its declaration: what the rig passes, and which options a user may set."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

import rig
from drivers.devices.xylo.rockpool_import import load_xylo_audio2
from drivers.meters.scpi.session import Visa
from rig.commands.shell.main import main
from rig.errors import MissingExtraError, SetupError, UnknownNameError, UsageError, missing_extra
from rig.factories import INJECTED, _hints, build, located, needs, options_of, plain_hint, split_options
from rig.plugin_list import describe
from rig.plugins import GROUPS, load, names
from rig.testing import Conforms, Measures
from rig.types import SimulatedBench
from scenarios.workloads.asc import audio
from scenarios.workloads.qubo_mis.graph import Graph
from tests.support.processes import python
from tests.support.raised import Capture, Patch, raised
from tests.support.remote_workers import opened

Made = dict[str, Any]


def factory(
    device: str, bench: str | None = None, *, count: int = 3, rate_hz: float = 10.0, loud: bool = False,
    label: str = "a", limit_s: float | None = None,
) -> Made:  # fmt: skip
    return dict(locals())


def needs_nothing(*, count: int = 1, workload: object = None) -> Made:
    return {"count": count, "workload": workload}


PLAIN: Made = {"bench": None, "count": 3, "rate_hz": 10.0, "loud": False, "label": "a", "limit_s": None}


def test_a_factory_receives_only_its_named_parameters() -> None:
    given_ = {"device": "chip", "bench": "field", "clock": "tick"}
    assert build(factory, given_, {}) == PLAIN | {"device": "chip", "bench": "field"}
    assert build(factory, {"device": "chip", "bench": None}, {}) == PLAIN | {"device": "chip"}


def test_an_injected_parameter_is_no_option() -> None:
    assert set(options_of(needs_nothing)) == {"count"}
    assert build(needs_nothing, {"workload": "w"}, {}) == {"count": 1, "workload": "w"}


def test_a_parameter_without_a_provider_is_a_setup_error() -> None:
    raised(SetupError, build, factory, {"bench": "field"}, {}, says="needs a device")
    assert needs(factory, "device")
    assert not needs(factory, "bench")
    assert not needs(factory, "clock")


def test_an_option_of_two_types_is_not_optional() -> None:
    def either(*, at: int | str = "begin") -> None: ...

    assert not options_of(either)["at"].optional


@given(st.integers(), st.floats(allow_nan=False, allow_infinity=False), st.booleans(), st.text())
def test_option_texts_are_converted_to_values(count: int, rate_hz: float, loud: bool, label: str) -> None:
    options = {"count": str(count), "rate_hz": repr(rate_hz), "loud": str(loud), "label": label}
    wanted = {"device": "chip", "count": count, "rate_hz": rate_hz, "loud": loud, "label": label}
    assert build(factory, {"device": "chip"}, options) == PLAIN | wanted


@pytest.mark.parametrize(("name", "text", "value"), [
    ("loud", "yes", True), ("loud", "ON", True), ("loud", "1", True), ("loud", "off", False), ("loud", "No", False),
    ("limit_s", "none", None), ("limit_s", "", None), ("limit_s", "2", 2.0), ("rate_hz", "1e3", 1000.0),
    ("count", "-4", -4), ("label", "none", "none"),
])  # fmt: skip
def test_words_are_read_as_values(name: str, text: str, value: object) -> None:
    assert build(factory, {"device": "chip"}, {name: text})[name] == value


def test_a_factory_exception_becomes_a_setup_error() -> None:
    def broken(*, ours: bool = False) -> None:
        raise UsageError("no") if ours else OSError("no such port")

    raised(SetupError, build, broken, {}, {}, says="no such port")
    raised(UsageError, build, broken, {}, {"ours": "true"})


def test_an_option_goes_to_its_declarer_or_the_named_part() -> None:
    takers: dict[str, Callable[..., Any]] = {"device": factory, "scenario": needs_nothing}
    assert split_options(["loud=yes"], takers) == {"device": {"loud": "yes"}, "scenario": {}}
    assert split_options(["scenario.count=5"], takers) == {"device": {}, "scenario": {"count": "5"}}
    assert split_options(["label=a=b"], takers)["device"] == {"label": "a=b"}


@pytest.mark.parametrize("others", [("meter", "meter1"), ("device", "bench")])
def test_parts_of_one_kind_share_an_option(others: tuple[str, str]) -> None:
    assert split_options(["count=2"], dict.fromkeys(others, factory)) == {other: {"count": "2"} for other in others}


def test_an_option_of_two_kinds_of_part_is_refused() -> None:
    with pytest.raises(UsageError, match="count is an option of the workload and of the meter") as caught:
        split_options(["count=2"], {"workload": factory, "meter": factory, "meter1": factory})
    assert "workload.count=2 or meter.count=2" in (caught.value.remedy or "")


@pytest.mark.parametrize("text", ["speed=1", "scenario.loud=yes", "nobody.count=1"])
def test_an_undeclared_option_is_refused(text: str) -> None:
    raised(UnknownNameError, split_options, [text], {"device": factory, "scenario": needs_nothing})


def test_an_option_may_not_have_the_name_of_an_argument_of_the_rig() -> None:
    def mistaken(*, device: str = "") -> str:
        return device

    caught = raised(SetupError, build, mistaken, {"device": object()}, {}, says="has an option device")
    assert "Rename" in caught.remedy
    assert build(mistaken, {}, {}) == ""


PLAIN_BY_DESIGN = {"simulate", "purpose", "metered"}
"""The value is passed as true or as text."""


@pytest.mark.parametrize("group", GROUPS)
def test_every_factory_declares_its_options_with_types(group: str) -> None:
    for name in names(group):
        try:
            factory = load(group, name)
        except MissingExtraError:
            continue
        hints = _hints(factory)
        assert [k for k in set(INJECTED) - PLAIN_BY_DESIGN if k in hints and plain_hint(hints[k])] == [], name
        for option in options_of(factory).values() if group != "commands" else ():
            assert option.optional or option.default is None or isinstance(option.default, (option.kind, int)), option


PLACES = {"": "b.toml:3: meters.dmm", "address": "b.toml:7: meters.dmm.options.address"}


def test_an_error_of_opening_names_the_line_of_the_option() -> None:
    with (
        pytest.raises(SetupError, match=r"^b\.toml:7: meters\.dmm\.options\.address: none was named") as caught,
        located(PLACES),
    ):
        raise SetupError("none was named", field="address", example="TCPIP::192.0.2.7::INSTR")
    assert caught.value.remedy == 'Write address = "TCPIP::192.0.2.7::INSTR" among the options of [meters.dmm]'


@pytest.mark.parametrize("places", [{}, PLACES])
def test_an_unrelated_error_stays_unchanged(places: dict[str, str]) -> None:
    with pytest.raises(SetupError, match=r"^it is off$"), located(places):
        raise SetupError("it is off", field="power")


@pytest.mark.parametrize(("package", "extra", "call"), [
    ("pyjoulescope_driver", "joulescope", lambda: load("meters", "joulescope")(rate_hz=20_000.0)),
    ("pynvml", "nvml", load("meters", "nvml")),
    ("serial", "serial", lambda: load("devices", "mlperf-tiny")(port="/dev/ttyACM0")),
    ("pyvisa", "visa", lambda: Visa("USB0::0x2A8D::0x0101::MY1::INSTR").open()),
    ("execnet", "loihi2", opened),
    *((name, "xylo", load_xylo_audio2) for name in ("rockpool", "xylosim", "bitstruct", "packaging")),
    ("dimod", "qubo", Graph(2, np.array([[0, 1]], np.int32)).to_bqm),
    ("soundfile", "audio", audio.versions),
    ("soxr", "audio", audio.versions),
])  # fmt: skip
def test_a_missing_extra_is_named(package: str, extra: str, call: Callable[[], object], monkeypatch: Patch) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    caught = raised(MissingExtraError, call)
    assert package in str(caught)
    assert f"pip install 'neurorig[{extra}]'" in caught.remedy


def test_a_lack_of_memory_is_not_a_missing_package() -> None:
    error = missing_extra("device 'mock'", ImportError("libx.so: failed to map segment from shared object"), "mock")
    assert not isinstance(error, MissingExtraError)
    assert "memory" in error.remedy


# ---- what others wrote ---------------------------------------------------------------------


def registering(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, package: str, line: str, version: str = "1.0", about: str = ""
) -> None:
    """Install a package that registers one meter."""
    folder = tmp_path / f"{package.replace('-', '_')}-{version}.dist-info"
    folder.mkdir(parents=True)
    (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: {version}\n{about}\nText\n")
    (folder / "entry_points.txt").write_text(f"[rig.meters]\n{line}\n")
    monkeypatch.syspath_prepend(str(tmp_path))


def test_installed_packages_are_searched_once(monkeypatch: pytest.MonkeyPatch) -> None:
    known = names("meters")
    monkeypatch.setattr("rig.plugin_list.registered", lambda: pytest.fail("they are opened again"))
    assert names("meters") == known


CANNOT_BE_LOADED = {
    "no_such_module:open_it": "ModuleNotFoundError: No module named 'no_such_module'",
    "json:open_it": "AttributeError: module 'json' has no attribute 'open_it'",
}


@pytest.mark.parametrize("target", CANNOT_BE_LOADED)
def test_an_unloadable_package_is_named_with_its_attribute(tmp_path: Path, monkeypatch: Patch, target: str) -> None:
    registering(tmp_path, monkeypatch, "lab-meters", f"# old = json:loads\nbench-meter = {target}")
    assert not [name for name in names("meters") if name.startswith("#")]
    caught = raised(SetupError, load, "meters", "bench-meter")
    what = f"meter 'bench-meter' is {target} of the package lab-meters, which cannot be loaded"
    assert caught.message == f"{what}: {CANNOT_BE_LOADED[target]}"
    assert "pip uninstall lab-meters" in caught.remedy


def test_a_command_of_another_package_that_fails_is_named(tmp_path: Path, monkeypatch: Patch, capsys: Capture) -> None:
    registering(tmp_path, monkeypatch, "lab-meters", "m = json:loads\n[rig.commands]\nlab = lab_command")
    (tmp_path / "lab_command.py").write_text("def add_arguments(parser): ...\ndef run(args): return {}['x']\n")

    assert main(["lab"]) == SetupError.exit_code

    said = "command 'lab' of the package lab-meters failed: KeyError: 'x'. Correct the package: lab_command.py, line 2"
    assert said in capsys.readouterr().err


def test_a_name_registered_twice_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    registering(tmp_path, monkeypatch, "lab-meters", "ppk2 = json:loads")
    raised(SetupError, load, "meters", "ppk2", says="'ppk2' is registered by lab-meters and neurorig")


def test_the_list_names_missing_packages_of_an_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    about = "".join(f'Requires-Dist: {name}; extra == "bench"\n' for name in ("NumPy>=1", "no-such-package[x]>=2"))
    registering(tmp_path, monkeypatch, "lab-meters", "bench-meter = json:loads [bench]", about=about)
    (row,) = [row for row in describe() if row["name"] == "bench-meter"]
    assert (row["extra"], row["installed"], row["missing"]) == ("bench", False, ["no-such-package"])


def test_the_list_shows_the_first_version_on_the_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for version, name in (("1.0", "old-meter"), ("2.0", "new-meter")):
        registering(tmp_path / version, monkeypatch, "lab-meters", f"{name} = json:loads", version)
    rows = {row["name"]: row["package"] for row in describe() if row["group"] == "meters"}
    assert [name for name, package in rows.items() if package == "lab-meters"] == ["new-meter"]
    assert rows["ppk2"] == "neurorig"


# ---- signatures that cannot be served ------------------------------------------------------


def test_a_missing_required_option_is_named() -> None:
    def needs_port(*, port: str) -> str:
        return port

    assert options_of(needs_port)["port"].required
    raised(UsageError, build, needs_port, {}, {}, says=r"needs the option port\. Add --option port=VALUE, of type str")
    assert build(needs_port, {}, {"port": "COM3"}) == "COM3"


# ---- the plug-in of pytest costs a test run without it next to nothing, and its fixtures report failures

MOST_S = 0.02
TIMED = """
import pytest, sys, time
began = time.process_time()
import rig.testing
rig.testing.pytest_load_initial_conftests()
print(time.process_time() - began)
print([name for name in ("numpy", "pyarrow", "rig.types", "rig.plugins", "fixtures") if name in sys.modules])
"""


def test_the_plug_in_loads_nothing_and_is_fast() -> None:
    runs = [python(TIMED) for _ in range(3)]
    took, loaded = zip(*(run.stdout.splitlines() for run in runs), strict=True)

    assert min(map(float, took)) < MOST_S
    assert set(loaded) == {"[]"}


def test_a_measurement_returns_its_result(rig_measure: Measures) -> None:
    results = [rig_measure("mock", meter="mock", options={"samples": 8, "audio_hz": 1000}) for _ in range(2)]

    assert [result.start.device.name for result in results] == ["mock", "mock"]
    low, high = results[0].quantities["active_power_w"].interval(0.95)
    assert low <= 3e-3 <= high


def test_a_test_fails_with_the_broken_rule(assert_conforms: Conforms) -> None:
    sound = assert_conforms(rig.blocking(lambda sample: {"label": "noise"}))
    raised(pytest.fail.Exception, assert_conforms, rig.blocking(lambda sample: {"label": np.nan}), says=r"reply\.json")

    assert "reply.json" in sound


def test_meters_and_workloads_conform_too(assert_conforms: Conforms, rig_bench: SimulatedBench) -> None:
    rig_bench.install({"core": 1e-3}, {"inference": {"core": 3e-3}})

    assert "samples.ids" in assert_conforms(rig.workload([rig.Sample("one", np.ones(3))], name="one"))
    assert assert_conforms(rig_bench.meter("mine", 1000.0), clock=rig_bench.clock)
