"""The files of an EEMBC EnergyRunner session: the trace, the stamps and the texts beside them."""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime
from pathlib import Path

import numpy as np

from drivers.failures import raising
from drivers.importers.files import bad_file, read_json, read_text, unstated
from rig.errors import DataError, UsageError, reason
from rig.types import Floats

MAGIC = 0xF1
ENERGY, STAMPS = "-energy.bin", "-timestamps.json"
UNITS = {"J": 1.0, "mJ": 1e-3, "uJ": 1e-6, "nJ": 1e-9}
TELLS_UNIT = 0.05
"""If the ratio of printed energy and trace is this close (relative) to a power of 1000, the trace has another unit."""
REMEDY = "Copy the whole folder of the session again"
_BESIDE = {"log.txt": "log.txt", "results.txt": "results.txt", "script.async": ".async"}
_LINE = re.compile(r"^(?P<t>\d+(?:\.\d+)?) (?P<who>[^:]+): (?P<what>.*)$")
_PRINTED = re.compile(r"\bEnergy {2,}:\s*(\d+(?:\.\d+)?) uJ")


@dataclass(frozen=True)
class LogLine:
    """One line of the log, stamped in seconds by the host."""

    t_s: float
    who: str
    what: str


@dataclass(frozen=True)
class Session:
    """One trace of a session. ``watts`` has shape (n,), NaN where a sample is absent.

    ``stamps_s`` is in order. Window k = 1, 2, ... is between ``stamps_s[2k - 1]`` and ``stamps_s[2k]``, and has
    ``counts[k - 1]`` inferences. The keys of ``files`` are the names under which they are kept.
    """

    name: str
    rate_hz: float
    watts: Floats
    stamps_s: tuple[float, ...]
    counts: tuple[int, ...]
    facts: Mapping[str, str]
    files: Mapping[str, Path]
    method: str = "energyrunner"
    log: tuple[LogLine, ...] = field(default=(), repr=False)


def read_session(path: Path, name: str, alone: bool, inferences: int | None, unit: str) -> Session:
    """Return the trace at ``path`` with its stamps and texts. Raises ``DataError``, ``UsageError``."""
    prefix = path.name.removesuffix(ENERGY)
    rate_hz, energy = read_energy(path)
    named = path.with_name(prefix + STAMPS)
    others = sorted(path.parent.glob("*timestamps.json")) if alone and not named.exists() else []
    stamps_path = others[0] if len(others) == 1 else named
    beside, texts = texts_beside(path.parent)
    before, log = _log(texts.get("log.txt", ""), prefix)
    stamps = read_stamps(stamps_path)
    counts = _counts(texts, log, len(stamps[2::2]), inferences)
    facts = _facts([*before, *log])
    odd = _compare(texts.get("results.txt", ""), energy, rate_hz, stamps, unit)
    facts |= {"results.txt": odd} if odd else {}
    watts = energy * (rate_hz * UNITS[unit])
    files = {p.name: p for p in (path, stamps_path, *beside)}
    return Session(name, rate_hz, watts, stamps, counts, facts, files, log=log)


def texts_beside(folder: Path) -> tuple[list[Path], dict[str, str]]:
    """Return the paths of log, results and script, and their texts by kind.

    If no file has the exact name, the only file with the ending in ``_BESIDE`` is taken; of several, none.
    """
    names = sorted(p for p in folder.iterdir() if p.is_file())
    found: dict[str, Path] = {}
    for kind, end in _BESIDE.items():
        exact = [p for p in names if p.name.lower() == kind]
        like = exact or [p for p in names if p.name.lower().endswith(end)]
        if len(like) == 1:
            found[kind] = like[0]
    return list(found.values()), {kind: read_text(path, REMEDY) for kind, path in found.items()}


def read_energy(path: Path) -> tuple[float, Floats]:
    """Read sampling rate (Hz) and energies (n,): byte 0xF1, float32 rate, float32 samples, little-endian.

    A sample that the meter dropped is NaN. Raises ``DataError``.
    """
    with raising(lambda error: bad(path, f"cannot be read: {reason(error)}", None), OSError):
        raw = path.read_bytes()
    if raw.startswith(b"version https://git-lfs"):
        remedy = "Fetch the files themselves: git lfs pull"
        raise bad_file(path, "is a Git LFS pointer, not the trace", remedy, field=path.name, value=len(raw))
    if len(raw) < 13 or raw[0] != MAGIC:
        raise bad(path, f"does not begin with 0x{MAGIC:X} and two samples", raw[:1].hex())
    if (len(raw) - 1) % 4:
        raise bad(path, "ends in the middle of a sample", len(raw))
    values = np.frombuffer(raw, "<f4", offset=1)
    with np.errstate(invalid="ignore"):  # a signalling NaN
        rate_hz, energy = float(values[0]), values[1:].astype(np.float64)
    if not (math.isfinite(rate_hz) and 1e-3 <= rate_hz <= 1e9):
        raise bad(path, f"states a sampling rate of {rate_hz} Hz", rate_hz)
    broken = np.flatnonzero(np.isinf(energy))
    if len(broken) or np.all(np.isnan(energy)):
        at = int(broken[0]) if len(broken) else 0
        raise bad(path, f"holds {energy[at]} as sample {at}", float(energy[at]))
    return rate_hz, energy


def read_stamps(path: Path) -> tuple[float, ...]:
    """Return stamps in seconds, in order: one, then two for each window. Raises ``DataError``."""
    found = read_json(path, REMEDY)
    numbers = isinstance(found, list) and all(isinstance(x, (int, float)) and not isinstance(x, bool) for x in found)
    if not numbers or not all(0.0 <= x < 1e9 for x in found):
        raise bad(path, "is not a list of seconds", str(found)[:60])
    stamps = tuple(float(x) for x in found)
    if list(stamps) != sorted(stamps) or len(stamps) % 2 == 0:
        what = f"holds {len(stamps)} stamps, not one and then two for each window, in rising order: the meter may have "
        raise bad(path, f"{what}missed an edge of the device's pin", None)
    return stamps


def _log(text: str, prefix: str) -> tuple[tuple[LogLine, ...], tuple[LogLine, ...]]:
    """Return the log's lines before the trace of this name was switched on, and the lines while it was on."""
    lines = tuple(LogLine(float(m["t"]), m["who"], m["what"]) for m in map(_LINE.match, text.splitlines()) if m)
    begun = [(k, m[1]) for k, x in enumerate(lines) if (m := re.fullmatch(r'Command "emon trace on (.+)"', x.what))]
    on = [k for k, name in begun if name == prefix] or [k for k, name in begun if prefix.endswith(name)]
    if not on:
        return lines, ()
    off = [k for k, line in enumerate(lines) if k > on[-1] and line.what == "m-trace[off]"]
    return lines[: on[-1]], lines[on[-1] : off[0] + 1 if off else len(lines)]


def _counts(texts: Mapping[str, str], log: Sequence[LogLine], windows: int, inferences: int | None) -> tuple[int, ...]:
    """Return the inferences in each window, from the first text that counts them. Raise an error if counts differ."""
    sources = {
        "log.txt": [m[1] for line in log if (m := re.fullmatch(r"\[dut\]: m-infer-start-(\d{1,9})", line.what))],
        "results.txt": re.findall(r"# Inferences\s*:\s*(\d{1,9})\b", texts.get("results.txt", "")),
    }
    for name, found in sources.items():
        if not found:
            continue
        counts = tuple(int(x) for x in found)
        if len(counts) != windows or min(counts) < 1:
            what = f"{name} counts {len(counts)} windows, but the stamps mark {windows}"
            remedy = "Check that all files are of one session, and remove those that are not"
            raise DataError(what, field=name, value=len(counts), remedy=remedy)
        if inferences is not None and set(counts) != {inferences}:
            raise other_count(name, counts[0], inferences)
        return counts
    if inferences is None and windows:
        what = "neither log.txt nor results.txt counts the inferences of a window"
        raise unstated("inferences", what, "inferences=NUMBER")
    return (inferences or 1,) * windows


def other_count(name: str, counted: object, inferences: int) -> UsageError:
    """Return the error for a count of inferences that contradicts the option."""
    what = f"{name} counts {counted} inferences, but the option says {inferences}"
    return UsageError(what, field="inferences", value=inferences, remedy="Leave the option out")


def _compare(results: str, energy: Floats, rate_hz: float, stamps: Sequence[float], unit: str) -> str:
    """Return a sentence on printed energies that the trace contradicts. Raise an error if they mean another unit."""
    printed = [float(x) for x in _PRINTED.findall(results)]
    if len(printed) != len(stamps[2::2]):
        return ""
    for k, (on, off, uj) in enumerate(zip(stamps[1::2], stamps[2::2], printed, strict=True), start=1):
        with np.errstate(over="ignore"):
            held = float(np.nansum(energy[round(on * rate_hz) : round(off * rate_hz)])) * UNITS[unit] * 1e6
        if not (uj > 0.0 and 0.0 < held < math.inf and 1e-15 < uj / held < 1e15):
            continue
        power = 3 * round(math.log10(uj / held) / 3)
        meant = {round(math.log10(f / UNITS[unit])): u for u, f in UNITS.items()}.get(power)
        if power and meant and abs(uj / held * 10.0**-power - 1.0) < TELLS_UNIT:
            what = f"results.txt prints {uj:g} uJ for window {2 * k}, but the trace in {unit} holds {held:g} uJ"
            raise unstated("unit", what, f"unit={meant}", unit)
        if abs(uj / held - 1.0) > TELLS_UNIT:
            return f"prints {uj:g} uJ for window {2 * k}, but the trace holds {held:g} uJ"
    return ""


def _facts(log: Sequence[LogLine]) -> dict[str, str]:
    known = {
        "session": r"m-session-start-id\[(\d+)\]",
        "model": r"\[dut\]: m-model-\[(.+)\]",
        "profile": r"\[dut\]: m-profile-\[(.+)\]",
        "meter": r"m-regfile-fn\[.+\]-type\[emon\]-name\[(.+)\]",
        "dropped": r"m-\[(Dropped .+)\]",
    }
    return {key: m[1][:80] for key, pattern in known.items() for line in log if (m := re.fullmatch(pattern, line.what))}


def day_of(session: str) -> date | None:
    """Return the day of a session if its number begins with YYYYMMDD; else None."""
    try:
        return datetime.strptime(session[:8], "%Y%m%d").date()
    except ValueError:
        return None


def bad(path: Path, what: str, value: object) -> DataError:
    """Return the error for a file that is not of the format."""
    return bad_file(path, what, REMEDY, field=path.name, value=value)
