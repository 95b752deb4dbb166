"""RAPL: the processor's own energy counters, which Linux provides under ``/sys/class/powercap``.

Sources: the kernel's Documentation/power/powercap/powercap.rst; Intel SDM volume 3, chapter "RAPL Interfaces" (the
counters have 32 bits and are updated about every millisecond). Since kernel 5.10 only root may read them
(CVE-2020-8694).
"""

from __future__ import annotations

import contextlib
import os
import re
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from drivers.failures import meter_failed
from drivers.meters.common_options import described
from drivers.meters.polled import HOST, Polled, polled_meter
from rig.bench.connected import Connected
from rig.bench.settings import parts_of, positive
from rig.errors import MeterError, SetupError, refused
from rig.types import Clock, Conversion, Meter, Rail

MODES = ("hardware",)

ROOT = "/sys/class/powercap"
CONTROL = "intel-rapl"
UPDATE_S = 1e-3
RATE_MOST_HZ = 500.0
BUFFER_S = 60.0
SLACK_S = 5e-3
"""Updates jitter: a counter's rise between two reads may cover this much more time than passed between them (s)."""
READ_ANYWAY = (
    f"Once per boot, as root: chmod a+r {ROOT}/{CONTROL}:*/energy_uj (every user can then watch the processor's power, "
    "CVE-2020-8694). Or run as root"
)
NONE = "They need an Intel or AMD processor and `modprobe intel_rapl_msr`; virtual machines mostly have none"
REST = "everything that is not the processor's: boards, disks, fans, cards, and what the power supply loses"


@dataclass(frozen=True)
class Zone:
    """One power zone. ``key`` is its directory's name without the control type (0, 0:1); ``rail`` is unique."""

    key: str
    name: str
    rail: str
    path: Path
    range_j: float

    def holds(self, other: Zone) -> bool:
        """Return whether this zone's counter includes the energy of ``other``."""
        if self.name == "psys":
            return other.name != "psys"
        # memory is listed below its package, but counted separately
        return other.key.startswith(self.key + ":") and other.name != "dram"


class EnergyCounter:
    """The unwrapped energy of one zone (J). ``most_w`` is the zone's largest power; ``now_s`` is a monotonic clock."""

    def __init__(self, zone: Zone, most_w: float, now_s: Callable[[], float] = time.monotonic) -> None:
        self._zone, self._most_w, self._now_s = zone, most_w, now_s
        self._file = os.fspath(zone.path / "energy_uj")
        self._last: tuple[float, float] | None = None
        self._total_j = 0.0

    def begin(self) -> None:
        """Start from the counter's present value."""
        self._last = None

    def look(self) -> float:
        """Return the counter's energy without wraps (J).

        Raises ``MeterError`` if the counter cannot be read, may have risen by its whole range since the last look, or
        rose by more than the zone can use.
        """
        now_s, raw_j = self._now_s(), self._raw() * 1e-6
        if self._last is None:
            self._total_j = raw_j
        else:
            gap_s = now_s - self._last[0]
            if gap_s * self._most_w >= self._zone.range_j:
                raise self._failed(
                    f"was not read for {gap_s:.3g} s, but at {self._most_w:g} W it wraps every "
                    f"{self._zone.range_j / self._most_w:.3g} s",
                    "Read it more often, or lower most_w to what this processor can draw",
                )
            rise_j = raw_j - self._last[1]
            rise_j += self._zone.range_j * (rise_j < 0)
            if rise_j > self._most_w * (gap_s + SLACK_S):
                raise self._failed(
                    f"rose by {rise_j:.3g} J in {gap_s:.3g} s: it was reset, or most_w ({self._most_w:g} W) is too low",
                    "Keep the computer from suspending, or raise most_w",
                )
            self._total_j += rise_j
        self._last = (now_s, raw_j)
        return self._total_j

    def _raw(self) -> int:
        try:  # a file object would take twice as long, so the time of the value would be twice as uncertain
            handle = os.open(self._file, os.O_RDONLY)
            try:
                return int(os.read(handle, 64))
            finally:
                os.close(handle)
        except (OSError, ValueError) as error:
            raise self._failed(f"cannot be read: {error}", "Check its permissions and its kernel module") from error

    def _failed(self, what: str, remedy: str) -> MeterError:
        return meter_failed(f"the energy counter of {self._zone.rail} {what}", "energy_uj", self._file, remedy)


def open_meter(
    clock: Clock | None = None,
    *,
    root: str = ROOT,
    name: str = "rapl",
    domains: str = "",
    rate_hz: float = 100.0,
    most_w: float = 2000.0,
) -> Meter:
    """Open the energy counters of this computer's processors, one cumulative rail in joules for each power zone.

    ``domains`` names the zones, separated by commas (package-0, package-0-dram, psys ...); by default every package and
    its memory. Two zones are refused if one contains the other, since their sum counts energy twice. The counters are
    read ``rate_hz`` times a second (500 Hz at most, since they are updated about every millisecond). ``most_w`` is the
    largest power of a zone. It limits how long a counter may stay unread before it could wrap unnoticed.

    Raises ``UsageError`` for options that do not fit, ``SetupError`` without counters or the right to read them.
    """
    positive(rate_hz=rate_hz, most_w=most_w)
    if rate_hz > RATE_MOST_HZ:
        what = f"at {rate_hz:g} readings per second the counter would give the same value twice"
        raise refused("rate_hz", rate_hz, f"Give {RATE_MOST_HZ:g} or less", what)
    zones = zones_of(Path(root))
    chosen = _chosen(zones, domains)
    for zone in chosen:
        _readable(zone)
    # the path of the kernel's counters contains this wherever sysfs is mounted; the path of a copied zone does not
    simulated = "/devices/virtual/powercap/" not in os.fspath(chosen[0].path.resolve())
    said = f"RAPL energy counters of {', '.join(z.rail for z in chosen)}, {rate_hz:g} looks/s; each is up to "
    info = described(
        name, HOST, f"{said}{UPDATE_S * 1e3:g} ms old", (_declared(z, rate_hz) for z in chosen),
        omitted=(*_omitted(zones, chosen), *_twice(Path(root)), REST), simulated=simulated, buffer_s=BUFFER_S,
        versions={"kernel": os.uname().release},
        details={
            "update_interval_s": UPDATE_S, "most_w": most_w,
            "age": "a counter's value is 0 to 1 ms old; declared as a filter of the same mean delay",
            "zones": {z.rail: {"path": os.fspath(z.path), "range_j": z.range_j} for z in chosen},
            "step_j": {z.rail: z.range_j / 2**32 for z in chosen},
        },
    )  # fmt: skip
    counters = {z.rail: EnergyCounter(z, most_w) for z in chosen}
    numbers = [Polled(rail, counter.look, begin=counter.begin) for rail, counter in counters.items()]
    return polled_meter(info, numbers, rate_hz, clock)


def _declared(zone: Zone, rate_hz: float) -> Rail:
    """Return the rail of a zone. The mean age of the counter's value is declared as the delay of a filter."""
    age_s, step_j = 0.5 * UPDATE_S, zone.range_j / 2**32
    return Rail(
        zone.rail, "cumulative", Conversion("J"), rate_hz, filter_tau_s=age_s, resolution=step_j, gain_id=zone.rail
    )


def connected(addresses: Sequence[str], root: str = ROOT) -> Iterator[Connected]:
    """Yield the counters of this processor, if it has any."""
    with contextlib.suppress(SetupError):
        yield Connected(f"RAPL counters: {', '.join(zone.rail for zone in zones_of(Path(root)))}", {})


def zones_of(root: Path) -> list[Zone]:
    """Return the zones of a powercap tree. Raises ``SetupError`` if there are none."""
    found: list[Zone] = []
    if root.is_dir():
        for path in sorted(root.glob(f"{CONTROL}:*"), key=lambda p: [*map(int, re.findall(r":(\d+)", p.name))]):
            with contextlib.suppress(OSError, ValueError):
                range_j = int((path / "max_energy_range_uj").read_text()) * 1e-6
                label = (path / "name").read_text().strip()
                if range_j > 0 and (path / "energy_uj").exists():
                    found.append(Zone(path.name.partition(":")[2], label, "", path, range_j))
    if not found:
        raise SetupError(f"{root} has no RAPL counters", field="root", value=str(root), remedy=NONE)
    names = {zone.key: zone.name for zone in found}
    named = [replace(zone, rail=_rail(zone.key, names)) for zone in found]
    count = Counter(zone.rail for zone in named)
    return [replace(z, rail=z.rail + f"-{z.key.replace(':', '-')}" * (count[z.rail] > 1)) for z in named]


def _rail(key: str, names: dict[str, str]) -> str:
    parent = key.rpartition(":")[0]
    return f"{_rail(parent, names)}-{names[key]}" if parent in names else names[key]


def _chosen(zones: Sequence[Zone], domains: str) -> list[Zone]:
    if not domains:
        tops = [z for z in zones if ":" not in z.key and z.name != "psys"]
        return [z for z in zones if z in tops or z.name == "dram"] or list(zones[:1])
    wanted = parts_of(domains)
    known = {z.rail: z for z in zones}
    for rail in wanted:
        if rail not in known:
            raise refused("domains", rail, f"Known: {', '.join(known)}", f"there is no RAPL zone {rail!r} here")
    chosen = [z for z in zones if z.rail in wanted]
    for outer in chosen:
        for inner in chosen:
            if outer.holds(inner):
                what = f"{outer.rail} contains {inner.rail}: their sum would count {inner.rail} twice"
                raise refused("domains", domains, "Choose one of them", what)
    return chosen


def _omitted(zones: Sequence[Zone], chosen: Sequence[Zone]) -> Iterator[str]:
    for zone in zones:
        if zone not in chosen:
            outer = [z.rail for z in chosen if z.holds(zone)]
            yield f"{zone.rail}: {f'counted in {outer[0]} already' if outer else 'not chosen'}"


def _twice(root: Path) -> list[str]:
    """Return zones of other control types: for example, the same counter read through memory-mapped registers."""
    others = sorted(p.name for p in root.glob(f"{CONTROL}-*:*") if p.name.count(":") == 1)
    return [f"{name}: another way to read a counter that is listed here" for name in others]


def _readable(zone: Zone) -> None:
    try:
        int((zone.path / "energy_uj").read_text())
    except (OSError, ValueError) as error:
        what, remedy = f"the energy counter of {zone.rail} cannot be read: {error}", "Leave this zone out of domains"
        if isinstance(error, PermissionError):
            what, remedy = f"you have no permission to read the energy counter of {zone.rail}", READ_ANYWAY
        raise SetupError(what, field="energy_uj", value=str(zone.path / "energy_uj"), remedy=remedy) from error
