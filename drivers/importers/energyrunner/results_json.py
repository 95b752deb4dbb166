"""The ``results.json`` with samples that the runner of MLPerf Tiny 1.3 (mlcommons/tiny) writes."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from drivers.importers.energyrunner.session import REMEDY, Session, bad, other_count, texts_beside
from drivers.importers.files import bad_file, below, check_inferences, read_json, unstated
from rig.errors import DataError, refused
from rig.types import Floats

RESULTS = "results.json"
RUNNER_HZ = 1000.0
"""The sampling rate that the runner sets in its meters and uses to compute; its files do not state it."""
LAID = "one behind the other; the pauses between them were not recorded"


def jsons(source: Path) -> list[Path]:
    """Return the ``results.json`` with energy samples in or below a folder, or the one file."""
    found = [source] if source.is_file() else below(source, RESULTS)
    return [p for p in found if p.suffix == ".json" and _holds_samples(p)]


def _holds_samples(path: Path) -> bool:
    try:
        return b'"samples"' in path.read_bytes()
    except OSError:
        return True  # reading it raises the error


def read_results(path: Path, name: str, inferences: int | None, rate_hz: float | None) -> Session:
    """Return the trials of one session as one trace, in sequence. Raises ``DataError``, ``UsageError``.

    A trial contains joules per sample, and the numbers of the samples at which the device's pin fell. The last two of
    these bound its window.
    """
    rate = RUNNER_HZ if rate_hz is None else rate_hz
    if not (math.isfinite(rate) and 1e-3 <= rate <= 1e9):
        raise refused("rate_hz", rate, "Give the sampling rate in samples per second")
    check_inferences(inferences)
    trials = [_trial(path, k, entry, inferences) for k, entry in enumerate(_entries(path))]
    beside, texts = texts_beside(path.parent)
    _check_elapsed(texts.get("results.txt", ""), [(off - on) / rate for _, on, off, _ in trials])
    at, stamps = 0, [0]
    for joules, on, off, _ in trials:
        stamps += [at + on, at + off]
        at += len(joules)
    watts = np.concatenate([joules for joules, *_ in trials]) * rate
    facts = _facts(texts.get("log.txt", "")) | ({"trials": LAID} if len(trials) > 1 else {})
    files = {p.name: p for p in (path, *beside)}
    counts = tuple(count for *_, count in trials)
    return Session(name, rate, watts, tuple(s / rate for s in stamps), counts, facts, files, "mlperf-tiny-runner")


def _entries(path: Path) -> list[Mapping[str, Any]]:
    found = read_json(path, REMEDY)
    entries = found if isinstance(found, list) else [found]
    trials: list[Mapping[str, Any]] = [e for e in entries if isinstance(e, dict) and isinstance(e.get("power"), dict)]
    if not trials:
        raise bad(path, "holds no trial with power samples", str(found)[:60])
    return trials


def _trial(path: Path, k: int, entry: Mapping[str, Any], inferences: int | None) -> tuple[Floats, int, int, int]:
    """Return joules per sample, shape (n,), the window's first sample and the one after its last, and inferences."""
    samples, stamps = entry["power"].get("samples"), entry["power"].get("timestamps")
    if not (isinstance(samples, list) and samples and all(_number(x) for x in samples)):
        raise bad(path, f"trial {k} holds no list of joules per sample", str(samples)[:60])
    joules = np.array(samples, dtype=np.float64)
    if np.any(np.isinf(joules)) or np.all(np.isnan(joules)):
        raise bad(path, f"trial {k} holds an infinite sample, or only NaN", None)
    ends = [s[1] for s in stamps if isinstance(s, list) and len(s) == 2] if isinstance(stamps, list) else []
    if len(ends) < 2 or len(ends) != len(stamps) or not all(isinstance(e, int) for e in ends):
        raise bad(path, f"trial {k} does not stamp the begin and end of its window", str(stamps)[:60])
    on, off = ends[-2], ends[-1]
    if not 0 <= on < off <= len(joules):
        raise bad(path, f"trial {k} has a window from sample {on} to {off}, but it has {len(joules)} samples", off)
    infer = entry.get("infer")
    count = infer.get("iterations") if isinstance(infer, dict) else None
    if inferences is not None and count not in (None, inferences):
        raise other_count(path.name, count, inferences)
    count = inferences if count is None else count
    if not (isinstance(count, int) and not isinstance(count, bool) and 1 <= count < 2**31):
        raise unstated(
            "inferences", f"{path.name}, trial {k} does not count its inferences", "inferences=NUMBER", count
        )
    return joules, on, off, count


def _number(x: object) -> bool:
    return isinstance(x, (int, float)) and not isinstance(x, bool) and not abs(x) >= 1e300  # NaN is a dropped sample


def _check_elapsed(results: str, lengths_s: list[float]) -> None:
    """Refuse lengths in ``results.txt`` that show another sampling rate. Raises ``UsageError``."""
    printed = [float(x) for x in re.findall(r"Elapsed time {2,}: (\d+(?:\.\d+)?)", results)]
    for stated_s, length in zip(printed, lengths_s, strict=False):
        if len(printed) == len(lengths_s) and abs(stated_s - length) > 1e-3 * max(stated_s, length):
            what = f"results.txt prints a window of {stated_s:g} s, which is {length:g} s at the assumed sampling rate"
            raise unstated("rate_hz", what, "rate_hz=NUMBER", length)


def _facts(log: str) -> dict[str, str]:
    known = {
        "session": r"sessions[\\/](\d{8}_\d{6})",
        "model": r"Device model retrieved: (.+)",
        "profile": r"Device profile retrieved: (.+)",
        "meter": r"(JS220|LPM01A)",
    }
    return {key: m[1].strip()[:80] for key, pattern in known.items() if (m := re.search(pattern, log))}


def wrong_rate(path: Path, rate_hz: float, stated: float) -> DataError:
    """Return the error for an option ``rate_hz`` that contradicts the file."""
    what = f"states {rate_hz:g} Hz, but the option says {stated:g} Hz"
    return bad_file(path, what, "Leave the option out", field="rate_hz", value=stated)
