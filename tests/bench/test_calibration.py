"""Calibration files: the limits that they state, the conditions that they require, and how they are refused."""

import json
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies as st

from drivers.meters.common_options import Instrument
from rig.bench.calibration import Aperture, accuracy, load, stated
from rig.errors import DataError, RigError, UsageError
from rig.types import Conversion, Rail
from tests.support.paths import EXAMPLES
from tests.support.raised import raised

EXAMPLE = EXAMPLES / "calibration.toml"
SMALL: dict[str, Any] = {
    "instrument": "i", "reference": "r", "valid_from": "2026-01-01", "valid_until": "2026-12-31",
    "range": [{"unit": "W", "full_scale": 10.0, "of_reading_percent": 1.0, "of_range_percent": 0.5}],
}  # fmt: skip


def written(folder: Path, data: Any) -> Path:
    (folder / "c.json").write_text(json.dumps(data))
    return folder / "c.json"


def test_the_example_is_read() -> None:
    found = load(EXAMPLE)
    assert found.valid_until == date(2027, 2, 3)
    assert [r.full_scale for r in found.ranges] == [0.01, 0.1]
    assert found.ranges[0].apertures == (Aperture(0.02, 0.003), Aperture(0.001, 0.010))


def test_linearity_is_of_range_and_optional() -> None:
    first, second = (accuracy(load(EXAMPLE), "A", range_max=full_a) for full_a in (0.01, 0.1))
    assert first.linearity == pytest.approx(2e-5 * 0.01)
    assert second.linearity is None


@pytest.mark.parametrize(("one_range", "wanted"), [(True, 0.01), (False, None)])
def test_an_auto_ranging_meter_has_no_linearity(one_range: bool, wanted: float | None, tmp_path: Path) -> None:
    always = SMALL | {"valid_until": "9999-12-31"}
    path = written(tmp_path, always | {"range": [SMALL["range"][0] | {"linearity_of_range_percent": 0.1}]})
    own = Instrument("meter", calibration=str(path))
    found = own.limited(Rail("r", rate_hz=10.0), "", one_range=one_range).accuracy

    assert found is not None
    assert found.linearity == (None if wanted is None else pytest.approx(wanted))


def test_rails_of_one_instrument_share_its_gain(tmp_path: Path) -> None:
    path = str(written(tmp_path, SMALL))
    first, second, own = (stated(rail, path) for rail in (Rail("a"), Rail("b"), Rail("c", gain_id="channel 3")))

    assert first.gain_id == second.gain_id is not None
    assert own.gain_id == "channel 3"


@pytest.mark.parametrize(("degrees", "outside"), [(18.0, 0.0), (26.0, 0.0), (30.5, 2.5), (13.0, 5.0)])
def test_limits_grow_with_degrees_outside_the_span(degrees: float, outside: float) -> None:
    limits = accuracy(load(EXAMPLE), "A", range_max=0.01, temperature_c=degrees, aperture_s=1.0)
    assert limits.of_reading == pytest.approx((0.050 + outside * 0.002) / 100)
    assert limits.offset == pytest.approx((0.020 + outside * 0.001) / 100 * 0.01)


@pytest.mark.parametrize(("aperture_s", "added"), [(0.02, 0.0), (0.01, 0.003), (0.0001, 0.010), (None, 0.010)])
def test_the_largest_aperture_term_counts(aperture_s: float | None, added: float) -> None:
    limits = accuracy(load(EXAMPLE), "A", range_max=0.01, aperture_s=aperture_s)
    assert limits.offset == pytest.approx((0.020 + added) / 100 * 0.01)


def test_the_certificate_and_unknown_facts_are_named() -> None:
    source = accuracy(load(EXAMPLE), "A", range_max=0.01).source
    unknown = ("temperature_c not stated", "validity not checked", "aperture not known")
    assert all(words in source for words in ("certificate 2026-0042", "12345", *unknown))


@pytest.mark.parametrize("degrees", [400.0, -273.0, 296.15])
def test_an_impossible_temperature_is_refused(degrees: float, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=f"temperature_c is {degrees:g}"):
        accuracy(load(EXAMPLE), "A", range_max=0.1, temperature_c=degrees)
    raised(DataError, load, written(tmp_path, SMALL | {"temperature_c": degrees}), says="temperature_c")


def test_the_aperture_defaults_to_rail_or_period(tmp_path: Path) -> None:
    short = SMALL["range"][0] | {"aperture": [{"below_s": 0.002, "of_range_percent": 0.01}]}
    path = str(written(tmp_path, SMALL | {"range": [short]}))

    def offset(rail: Rail, **more: float) -> float:
        found = stated(rail, path, **more).accuracy  # type: ignore[arg-type]
        assert found is not None
        return found.offset

    plain, added = pytest.approx(0.05), pytest.approx(0.05 + 0.001)
    assert offset(Rail("r", rate_hz=1000.0)) == added
    assert offset(Rail("r", rate_hz=100.0)) == plain
    assert offset(Rail("r", rate_hz=100.0, aperture_s=1e-4)) == added
    assert offset(Rail("r"), aperture_s=0.01) == plain
    assert offset(Rail("r")) == added  # unknown, so it may be short


@pytest.mark.parametrize("day", [date(2026, 2, 2), date(2027, 2, 4)])
def test_an_expired_calibration_is_refused(day: date) -> None:
    raised(DataError, accuracy, load(EXAMPLE), "A", says="is valid from", range_max=0.1, on=day)


@pytest.mark.parametrize(("unit", "range_max"), [("A", None), ("A", 1.0), ("W", None)])
def test_a_range_is_required(unit: str, range_max: float | None) -> None:
    assert raised(UsageError, accuracy, load(EXAMPLE), unit, range_max=range_max).field == "calibration_range"


def test_a_rail_without_a_file_has_no_limits() -> None:
    rail = Rail("core", conversion=Conversion("W"), rate_hz=10.0)
    assert stated(rail, None).accuracy is None
    raised(UsageError, stated, rail, None, says="without a calibration", temperature_c=20.0)


@pytest.mark.parametrize(("own", "kind", "wanted"), [
    (None, "mean", 12.0), (5.0, "mean", 5.0), (20.0, "point", 12.0), (None, "cumulative", None)
])  # fmt: skip
def test_limits_end_far_above_full_scale(own: float | None, kind: Any, wanted: float | None, tmp_path: Path) -> None:
    rail = Rail("wall", kind, Conversion("W"), rate_hz=1.0, range_max=own)
    assert stated(rail, str(written(tmp_path, SMALL))).range_max == wanted


def ranged(**change: Any) -> dict[str, Any]:
    return {"range": [SMALL["range"][0] | change]}


@pytest.mark.parametrize(("change", "field"), [
    ({"instrument": None}, "instrument"), ({"instrument": 5}, "instrument"), ({"valid_from": "soon"}, "valid_from"),
    ({"valid_until": "2025-01-01"}, "valid_until"), ({"temprature_c": 20}, "temprature_c"),
    ({"temperature_c": float("nan")}, "temperature_c"), ({"range": []}, "range"), ({"range": [5]}, "range[0]"),
    ({"range": [{"unit": "A"}]}, "range[0].full_scale"), (ranged(unit="B"), "range[0].unit"),
    (ranged(full_scale=0), "range[0].full_scale"), (ranged(of_reading_percent=-1), "range[0].of_reading_percent"),
    (ranged(aperture=[{"below_s": 1}]), "range[0].aperture[0].of_range_percent"),
    (ranged(aperture=1), "range[0].aperture"),
])  # fmt: skip
def test_a_bad_field_is_named(change: dict[str, Any], field: str, tmp_path: Path) -> None:
    caught = raised(DataError, load, written(tmp_path, {k: v for k, v in (SMALL | change).items() if v is not None}))
    assert caught.field == field


def test_an_invalid_toml_line_is_named(tmp_path: Path) -> None:
    (tmp_path / "c.toml").write_text('instrument = "i"\nreference = \n')
    raised(DataError, load, tmp_path / "c.toml", says="line 2")
    raised(UsageError, load, tmp_path / "absent.toml")


@given(st.recursive(st.none() | st.booleans() | st.floats() | st.text(), lambda x: st.lists(x) | st.dictionaries(st.sampled_from([*SMALL, "aperture", "unit", "full_scale"]), x)))  # fmt: skip  # noqa: E501
def test_any_text_is_read_or_refused(tmp_path_factory: pytest.TempPathFactory, data: Any) -> None:
    path = written(tmp_path_factory.mktemp("c"), SMALL | data if isinstance(data, dict) else data)
    try:
        assert load(path).ranges
    except RigError as error:
        assert error.field
