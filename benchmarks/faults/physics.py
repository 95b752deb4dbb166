"""Recordings with valid hashes that claim more than was measured: the audit must find what arithmetic can find.

A case may leave a recording unchanged, which must raise no alarm. Or it claims hardware, shifts the trace relative to
the spans, multiplies executions or inferences, or changes the supply voltage. A case depends only on the seed and its
number.
"""

import functools
import json
import random
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from benchmarks.faults.forge import bind_again, hash_again, lines_of, read, store, unpacked, workplace
from benchmarks.faults.tally import Outcome, Tally, spread, tried
from reports.audit.audit import Audit, audit
from rig.recording.layout import EVENTS
from rig.recording.session_json import is_session

PART = "forged physics"
BASES = (
    "by-hand-example", "current-burden", "single-session", "two-rails", "session-trials", "dropped-readings",
)  # fmt: skip
MOVED_S = (0.03, 0.09)


def as_it_is(run: Path, draw: random.Random) -> None:
    """Change nothing."""


def as_hardware(run: Path, draw: random.Random) -> None:
    """Let device and meters claim to be hardware; change nothing else."""
    lines = lines_of(run)
    for part in (lines[0]["device"], *lines[0]["meters"]):
        part["mode"] = "hardware"
    hash_again(run, lines)


def moved(run: Path, draw: random.Random) -> None:
    """Roll every trace by some hundredths of a second: readings that leave at one end enter at the other."""
    by_s = draw.uniform(*MOVED_S) * draw.choice((-1, 1))
    for file in (run / "traces").glob("*.arrows"):
        table = read(file)
        rate_hz = json.loads((table.schema.metadata or {})[b"rail"])["rate_hz"]
        column(file, table, "value", np.roll(table["value"].to_numpy(), round(by_s * rate_hz)))
    hash_again(run)


def multiplied(file: str, name: str) -> Callable[[Path, random.Random], None]:
    """Return a function that multiplies a count in every row of a table."""

    def change(run: Path, draw: random.Random) -> None:
        table, by = read(run / file), draw.randint(2, 9)
        column(run / file, table, name, [None if n is None else by * n for n in table[name].to_pylist()])
        hash_again(run)

    return change


def other_volts(run: Path, draw: random.Random) -> None:
    """Put another supply voltage into the conversion, both in the start line and in the traces."""
    lines, by = lines_of(run), draw.uniform(0.4, 0.9)
    rails = [rail for meter in lines[0]["meters"] for rail in meter["rails"]]
    for rail in rails:
        rail["conversion"]["supply_v"] *= by
    for file in (run / "traces").glob("*.arrows"):
        table = read(file)
        meta = dict(table.schema.metadata or {})
        told = json.loads(meta[b"rail"])
        told["conversion"]["supply_v"] *= by
        store(file, table.replace_schema_metadata(meta | {b"rail": json.dumps(told).encode()}))
    hash_again(run, lines)


def column(file: Path, table: pa.Table, name: str, values: Any) -> None:
    field = table.schema.field(name)
    store(file, table.set_column(table.schema.get_field_index(name), field, [pa.array(values, field.type)]))


KINDS: dict[str, tuple[tuple[str, ...], Callable[[Path, random.Random], None], int]] = {
    "as it is": (BASES, as_it_is, 0),
    "hardware": (BASES[1:], as_hardware, 16),
    "moved": (("single-session", "session-trials"), moved, 19),
    "executions": (BASES[1:], multiplied("replies.arrows", "executions"), 28),
    "inferences": (BASES[1:], multiplied("samples.arrows", "inferences"), 8),
    "volts": (("current-burden",), other_volts, 24),
}
"""By name: the recordings, the change, and the number of the check that must fail (0: none)."""


def campaign(cases: int, seed: int, workers: int) -> Tally:
    """Audit ``cases`` recordings."""
    with workplace() as place:
        for name in BASES:
            unpacked(name, Path(place) / "bases")
        return spread(PART, cases, workers, functools.partial(counted, Path(place), seed))


def counted(place: Path, seed: int, numbers: range) -> Tally:
    """Try the cases of these numbers."""
    tally = Tally(PART)
    for number in numbers:
        draw = random.Random(f"{seed}:{number}")
        kind = draw.choice([*KINDS])
        bases, change, check = KINDS[kind]
        base = draw.choice(bases)
        with tempfile.TemporaryDirectory(dir=place) as work:
            path = shutil.copytree(place / "bases" / base, Path(work) / base)
            for run in sorted(p.parent for p in path.rglob(EVENTS)):
                change(run, draw)
            if is_session(path):
                bind_again(path)
            tally.add(f"case {number}, {base}, {kind}", *judged(path, check))
    return tally


def judged(path: Path, check: int) -> tuple[Outcome, str]:
    """Audit a path. A forged recording must fail its check; an unchanged one must fail no check of ``KINDS``."""
    found: list[Audit] = []
    outcome, said = tried(lambda: found.append(audit(path)))
    if outcome is not Outcome.WHOLE:
        return outcome, said
    failed = {c.number: c.found for c in found[0].failed}
    if check:
        return (Outcome.REFUSED if check in failed else Outcome.UNNOTICED), f"check {check} did not fail"
    alarms = [f"{number}: {failed[number]}" for _, _, number in KINDS.values() if number in failed]
    return (Outcome.UNNOTICED if alarms else Outcome.WHOLE), "; ".join(alarms)
