"""Joulescope JS110, JS220 and JS320 by their own driver package: power, streamed at a declared rate.

    rig measure --device ... --meter joulescope --option rate_hz=100000

The instrument numbers its readings (``sample_id``), so missing readings become NaN in the trace. The package reduces
the instrument's own sampling rate to ``rate_hz``. The filter of this reduction is recorded if the instrument states it.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from drivers.failures import raising, released_on_error
from drivers.meters.common_options import Instrument
from drivers.meters.joulescope.stream import Input, JoulescopeStream, Mark, let_go
from drivers.meters.threaded import HOLD_S, sampled_meter
from rig.bench.connected import Connected
from rig.bench.settings import Positive, of_settings
from rig.errors import SetupError, refused
from rig.plugins import imported
from rig.types import Clock, Conversion, Meter, Rail

MODES = ("hardware",)
FEEDS = True

RANGES = "10 A, 180 mA, 18 mA, 1.8 mA, 180 uA, 18 uA"


@dataclass(frozen=True)
class Joulescope:
    """The options. See ``open_meter``."""

    own: Instrument = Instrument("joulescope")
    rail: str = "supply"
    mark: Mark = Mark()
    instrument: str = ""
    rate_hz: Positive = 100_000.0
    range_mode: str = "auto"
    timeout_s: Positive = 2.0


@of_settings
def open_meter(settings: Joulescope, clock: Clock | None = None) -> Meter:
    """Open a Joulescope. If there are several, ``instrument`` is its path (``u/js220/000123``) or a part of the path.

    ``rate_hz`` is 1, 2, 5, 10 and so on up to 1,000,000 (JS110: 2,000,000). ``range_mode`` is ``auto``, a range of
    current such as ``180 mA``, or ``manual`` (the range set last; not on a JS110). ``clock_tolerance`` limits the
    relative rate error of its sample timer. ``calibration`` names a file with limits in the rail's unit; without a file
    no accuracy is stated. The meter may be silent for ``timeout_s``. ``mark_input`` (0 to 3, 7: trigger) is a logic
    input, recorded as edges. ``pin`` is what the device does at this input: high during each span (``level``), a
    falling edge at the begin and at the end of a span (``stamp``), or ``toggle``. An edge is at most ``pin_lag_s``
    early or late. ``mark_vref`` (``3v3``, ``extern``) sets the voltage of the inputs.

    Raises ``UsageError`` for options that do not fit, ``MissingExtraError`` without pyjoulescope_driver,
    ``SetupError`` for an instrument that is not there or refuses its settings.
    """
    s = settings
    if s.rate_hz != round(s.rate_hz):
        raise refused("rate_hz", s.rate_hz, "Give a whole number")
    if s.range_mode == "off":
        raise refused("range_mode", s.range_mode, f"Give auto or one of {RANGES}", "off cuts the supply of the device")
    range_mode = s.range_mode.replace(" uA", " \N{MICRO SIGN}A")
    package, driver = _driver()
    path = ""
    with released_on_error(lambda: let_go(driver, path)):
        path = _path(driver, s.instrument)
        own_filter = _settings(driver, path, s.rate_hz, range_mode)
        rail = Rail(s.rail, "mean", Conversion("W"), s.rate_hz, gain_id=f"{path}:power")
        serial = path.rsplit("/", 1)[-1]
        marks = None if s.mark.mark_input is None else Input(driver, path, s.own.name, s.mark, s.timeout_s)
        info = s.own.info(
            f"Joulescope {path}, power, {s.rate_hz:g} readings/s",
            s.own.limited(rail, serial, one_range=range_mode != "auto"), *([marks.rail] if marks else []),
            buffer_s=HOLD_S, versions={"pyjoulescope_driver": str(getattr(package, "__version__", ""))},
            details={
                "instrument": path, "signal": "power", "range_mode": range_mode,
                "rate_filter": own_filter, "lost_readings": "NaN, as the readings' numbers show",
            },
            serial_number=serial,
        )  # fmt: skip
        source = JoulescopeStream(driver, path, info, marks, s.timeout_s)
        return sampled_meter(info, source, clock, s.timeout_s + 2.0, round(HOLD_S * s.rate_hz))


def connected(addresses: Sequence[str]) -> Iterator[Connected]:
    """Yield every Joulescope on this computer."""
    _, driver = _driver()
    try:
        for path in driver.device_paths():
            yield Connected(f"Joulescope {path}", {"instrument": str(path)})
    finally:
        driver.finalize()


def _driver() -> tuple[Any, Any]:
    package = imported("pyjoulescope_driver", "a Joulescope", "joulescope", value="pyjoulescope_driver")
    try:
        return package, package.Driver()
    except Exception as error:
        what = f"the Joulescope driver does not start: {error}"
        remedy = "Check its installation; on Linux its udev rules"
        raise SetupError(what, field="meter", value="pyjoulescope_driver", remedy=remedy) from error


def _path(driver: Any, instrument: str) -> str:
    paths = [str(p) for p in driver.device_paths()]
    found = [p for p in paths if instrument.lower() in p.lower()]
    if len(found) != 1:
        what = f"{len(found)} connected Joulescopes match {instrument!r}" if paths else "no Joulescope is connected"
        remedy = f"Name one: instrument=PATH. Connected: {', '.join(paths)}"
        remedy = remedy if paths else "Check its cable and, on Linux, its udev rules; close other programs that use it"
        raise SetupError(what, field="instrument", value=instrument, remedy=remedy)
    return found[0]


def _settings(driver: Any, path: str, rate_hz: float, range_mode: str) -> str:
    """Open the instrument, set rate and range; return the filter of the rate reduction, if the model states it."""
    _told("Close every other program that uses it", "instrument", path, "to open", driver.open, path)
    rates = "Give rate_hz=1000000 or less, in steps of 1, 2, 5; a JS110 has 2000000 too, a JS320 no 500000"
    _told(rates, "rate_hz", rate_hz, "its setting h/fs", driver.publish, f"{path}/h/fs", round(rate_hz))
    known = f"Give range_mode=auto or one of {RANGES}; a JS110 has 2 A too, and no mode `manual`"
    for topic, value in range_settings(path, range_mode).items():
        _told(known, "range_mode", range_mode, f"its setting {topic}", driver.publish, f"{path}/{topic}", value)
    try:
        return str(driver.query(f"{path}/h/filter"))
    except Exception:  # a model without this setting
        return "not stated"


def range_settings(path: str, range_mode: str) -> dict[str, str]:
    """Return the topics that set the range of current, in the order in which they are published.

    A JS110 needs one topic; its ``s/i/range/mode`` sets how readings at a change of range are treated (js110_usb.c).
    A later model has a mode, in which it chooses the range itself or stays in one (Joulescope's own ``js220.py``).
    """
    if "/js110/" in path:
        return {"s/i/range/select": range_mode}
    if range_mode in ("auto", "manual"):
        return {"s/i/range/mode": range_mode}
    return {"s/i/range/select": range_mode, "s/i/range/mode": "manual"}


def _told(remedy: str, field: str, value: object, what: str, call: Callable[..., object], *values: object) -> None:
    refused = partial(SetupError, field=field, value=value, remedy=remedy)
    with raising(lambda error: refused(f"the Joulescope refuses {what}: {error}"), Exception):
        call(*values)
