"""Recordings whose every hash fits and whose content is malformed: each field in turn, with hostile values.

    python -m benchmarks.faults.fields [--cases 1000] [--seed 0] [--recordings tests/golden] [--only NAME] [--workers 2]

Each case takes one recording, changes one to three fields of its lines, the metadata of its traces, its columns or its
``session.json``, makes every hash fit again, and does what `rig report` does: it reads and evaluates, and a share of
the cases is also rendered to a terminal, and a smaller one to a page. Recordings that are read quickly are taken more
often. A case ends ``whole`` or ``refused`` with a typed error. Anything else is a finding: a traceback, a case of more
than ``SLOW_S`` seconds of processor time, a process that dies, a control character on the terminal, or a file outside
``derived/``. Counts per outcome are printed, and JSON as the last line. The exit code is 1 if there is a finding.
"""

from __future__ import annotations

import argparse
import functools
import io
import json
import random
import shutil
import tarfile
import tempfile
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from benchmarks.faults.forge import bind_again, hash_again, lines_of
from reports.console import lines as console_lines
from reports.render import context
from rig import plugins
from rig.analysis.evaluate import evaluate
from rig.analysis.session_rules import Part
from rig.errors import RigError
from rig.recording.layout import DERIVED, EVENTS
from rig.recording.reader import open_run
from rig.recording.session import FILE, is_session, open_session
from rig.session.report import report, session_result

SLOW_S = 20.0
LARGEST_BYTES = 400_000
"""Recordings whose archive is larger are left out, so that a case takes milliseconds."""
ESCAPE = "\x1b]0;owned\x07\x1b[2J"
TERMINAL_SHARE, PAGE_SHARE = 0.2, 0.01
"""The shares of the cases that are also printed, and that also draw the pictures of the page."""
CHUNK = 200


def nested(depth: int) -> Any:
    """Return lists inside lists."""
    value: Any = 0
    for _ in range(depth):
        value = [value]
    return value


HOSTILE: tuple[Any, ...] = (
    None, True, False, 0, 1, -1, 2**31, 2**53 + 1, 2**62 - 1, 2**62, -(2**63), 2**64, 10**30, 0.5, -0.5, 1e308, -1e308,
    5e-324, float("nan"), float("inf"), float("-inf"), "", "x", "1", "host", "nan", "../../x", "/etc/passwd", ESCAPE,
    "\u202e\u2066x", "\ud800", "\x00", "a\nb", "<script>", [], {}, [None], [[]], {"": None},
    {"x": {"y": []}}, [1, 2, 3], [[2**62, 0, -1]], nested(200), nested(900), "inference", "mock", "core", [ESCAPE],
    {ESCAPE: ESCAPE}, "n" * 50_000,
)  # fmt: skip
HUGE, HUGE_SHARE = "n" * 5_000_000, 0.002
RAW: tuple[bytes, ...] = (
    b"9" * 5000, b"1e400", b"-" + b"9" * 400, b"[" * 3000 + b"]" * 3000, b'{"a":' * 1500 + b"1" + b"}" * 1500, b"NaN",
    b"-Infinity", b'"\\ud800"', b"1.0", b"1e2",
)  # fmt: skip
"""Values that ``json.dumps`` would not write, in the place of one field."""
OUTPUTS = (
    "{}", "[]", "null", "1", '"x"', '{"label": {}}', '{"label": [1]}', '{"label": null}', '{"cost": 1}',
    '{"cost": "x", "solution": 1}', '{"cost": NaN, "solution": ""}', '{"cost": 1, "solution": "zz"}',
    '{"cost": -1e308, "solution": "ff"}', '{"cost": 1, "solution": null}', '{"scores": [[]]}',
    '{"cost": -5, "solution": "00", "budget_s": "x", "overrun_s": []}', '{"probabilities": {"x": "y"}}',
    '{"label": "park", "probabilities": [1, "x"]}', '{"label": "park", "probabilities": {"park": 1e999}}',
)  # fmt: skip
"""Answers that are JSON and mean nothing."""
DIED = "FINDING: the process died"
MARK = "\ue000here\ue000"


# ---- what is changed -----------------------------------------------------------------------


def hostile(draw: random.Random) -> Any:
    """Draw a value; seldom one of megabytes, which takes longer than all others."""
    return HUGE if draw.random() < HUGE_SHARE else draw.choice(HOSTILE)


def places(value: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the path of each field of a document, and each of at most three elements of a list."""
    pairs: list[tuple[Any, Any]] = []
    if isinstance(value, dict):
        pairs = list(value.items())
    elif isinstance(value, list):
        pairs = list(enumerate(value[:3]))
    for key, inner in pairs:
        yield (*at, key)
        yield from places(inner, (*at, key))


def change(document: Any, draw: random.Random, value: Any) -> str:
    """Change, remove or add one field in place; return which."""
    if isinstance(value, (list, dict)):  # a copy, since a later change may change it
        value = json.loads(json.dumps(value))
    known = [p for p in places(document) if p not in (("seq",), ("prev",))]
    if not known:
        return "-"
    path = draw.choice(known)
    inner = document
    for key in path[:-1]:
        inner = inner[key]
    how = draw.random()
    if how < 0.1:
        del inner[path[-1]]
    elif how < 0.15 and isinstance(inner, list):
        inner.append(inner[path[-1]])
    elif how < 0.2 and isinstance(inner, dict):
        inner[f"{path[-1]}_more"] = value
    else:
        inner[path[-1]] = value
    return ".".join(map(str, path))


def change_lines(run: Path, draw: random.Random) -> str:
    """Change fields of the lines; one in ten cases writes a value that is no plain JSON."""
    lines: list[Any] = lines_of(run)
    number = draw.choice([0, 0, len(lines) - 1, draw.randrange(len(lines))])
    raw = draw.random() < 0.1
    what = change(lines[number], draw, MARK if raw else hostile(draw))
    if draw.random() < 0.05:
        lines.insert(number, lines[draw.randrange(len(lines))])
    if draw.random() < 0.05:
        del lines[draw.randrange(len(lines))]
    if raw:
        number = min(number, len(lines) - 1)
        body = {k: v for k, v in lines[number].items() if k not in ("seq", "prev")} if lines else {}
        lines[number] = json.dumps(body).encode().replace(json.dumps(MARK).encode(), draw.choice(RAW))
    hash_again(run, lines)
    return f"{'raw ' if raw else ''}line {number} {what}"


def change_metadata(run: Path, draw: random.Random) -> str:
    """Change what a trace says of itself."""
    files = sorted((run / "traces").glob("*.arrows"))
    if not files:
        return change_lines(run, draw)
    file = draw.choice(files)
    table = read(file)
    meta = {k.decode(): v.decode() for k, v in (table.schema.metadata or {}).items()}
    key = draw.choice([*meta, "rail", "grid", "clock"])
    what = key
    if key in ("rail", "grid") and draw.random() < 0.8:
        document = json.loads(meta.get(key, "{}"))
        what = f"{key}.{change(document, draw, hostile(draw))}"
        meta[key] = json.dumps(document)
    else:
        meta[key] = (
            draw.choice([str(v) for v in HOSTILE] + [r.decode() for r in RAW]).encode("utf-8", "replace").decode()
        )
    store(file, table.replace_schema_metadata(meta))
    hash_again(run)
    return f"{file.name} {what}"


def change_column(run: Path, draw: random.Random) -> str:
    """Change values, type, name or presence of a column of a table or trace."""
    files = [f for f in sorted(run.rglob("*.arrows")) if f.stat().st_size]
    if not files:
        return change_lines(run, draw)
    file = draw.choice(files)
    table = read(file)
    name = draw.choice(table.column_names)
    index, how = table.column_names.index(name), draw.randrange(6)
    values = table[name].to_pylist()
    if how == 0:
        table = table.remove_column(index)
    elif how == 1:
        table = table.rename_columns([f"{n}x" if n == name else n for n in table.column_names])
    elif how == 2:
        table = table.set_column(index, name, pa.array([str(v) for v in values]))
    elif how == 3:
        table = pa.concat_tables([table, table]) if draw.random() < 0.5 else table.slice(0, 0)
    elif name == "output" and how == 4:
        values = [draw.choice(OUTPUTS) for _ in values]
        table = table.set_column(index, name, pa.array(values))
    elif values:
        for _ in range(draw.choice([1, 1, 3, len(values)])):
            values[draw.randrange(len(values))] = draw.choice(HOSTILE[:33])
        try:
            column = pa.array(values, table.schema.field(name).type, from_pandas=False)
        except (pa.ArrowException, TypeError, ValueError, OverflowError, UnicodeError):
            column = pa.array([json.dumps(v, default=str)[:100] for v in values])
        table = table.set_column(index, name, column)
    store(file, table)
    hash_again(run)
    return f"{file.name} {name} {how}"


def change_session(session: Path, draw: random.Random) -> str:
    """Change ``session.json``, its own hashes made to fit."""
    said = ""

    def once(document: dict[str, Any]) -> None:
        nonlocal said
        said = change(document, draw, hostile(draw))

    try:
        bind_again(session, once)
    except (TypeError, KeyError, ValueError, AttributeError, OSError):  # no longer a session that can be bound
        document = json.loads((session / FILE).read_text())
        said = change(document, draw, hostile(draw))
        (session / FILE).write_text(json.dumps(document))
        (session / f"{FILE}.sha256").unlink(missing_ok=True)
    return f"{FILE} {said}"


def read(file: Path) -> pa.Table:
    """Return a stream as a table."""
    with pa.OSFile(str(file)) as source, pa.ipc.open_stream(source) as reader:
        return reader.read_all()


def store(file: Path, table: pa.Table) -> None:
    """Write a table as a stream."""
    with pa.OSFile(str(file), "wb") as sink, pa.ipc.new_stream(sink, table.schema) as stream:
        stream.write_table(table)


# ---- what becomes of it --------------------------------------------------------------------


def reported(path: Path, how: float) -> None:
    """Do what `rig report` does; ``how`` below a share adds its part.

    Raises ``AssertionError`` for a control character on the terminal, and for a file outside ``derived/``.
    """
    if how < PAGE_SHARE:
        before = {*path.parent.rglob("*")}
        report(path)
        outside = [f for f in {*path.parent.rglob("*")} - before if DERIVED not in f.relative_to(path).parts]
        assert not outside, f"written outside: {outside}"
        return
    session = open_session(path) if is_session(path) else None
    parts = []
    for folder, purpose in session.runs if session is not None else ((path, ""),):
        run = open_run(folder)
        parts.append(Part(folder.name, purpose, run, evaluate(run)))
    results = [part.result for part in parts]
    if session is not None and (whole := session_result(session, parts)) is not None:
        results.append(whole)
    for result in results:
        json.dumps(result.to_json())
        if how < TERMINAL_SHARE:
            shown(result)
            context(parts[-1].run, result)


def shown(result: Any) -> None:
    """Print a result as to a terminal, and look at what was printed."""
    from rich.console import Console

    file = io.StringIO()
    for verbose in (False, True):
        Console(file=file, highlight=False, width=100).print(console_lines(result, verbose))
    if bad := {c for c in file.getvalue() if not c.isprintable() and c != "\n"}:
        raise AssertionError(f"control characters on the terminal: {sorted(bad)!r}")


def attempt(path: Path, how: float) -> str:
    """Return the outcome of one case."""
    began_s = time.process_time()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            reported(path, how)
        found = "whole"
    except RigError as error:
        said = str(error)
        found = f"refused: {type(error).__name__}"
        if len(said) > 500_000:
            found = f"FINDING: a message of {len(said)} characters"
    except MemoryError:
        found = "FINDING: MemoryError"
    except Exception as error:
        last = [f for f in traceback.extract_tb(error.__traceback__) if "/benchmarks/faults/" not in f.filename][-3:]
        at = " < ".join(f"{Path(f.filename).name}:{f.lineno}" for f in reversed(last))
        found = f"FINDING: {type(error).__name__} at {at}: {str(error)[:80]}"
    took_s = time.process_time() - began_s
    return f"FINDING: {took_s:.0f} s, then {found}" if took_s > SLOW_S else found


CHANGES: tuple[tuple[float, Callable[[Path, random.Random], str]], ...] = (
    (0.55, change_lines), (0.2, change_metadata), (0.25, change_column),
)  # fmt: skip


def one_case(base: Path, work: Path, draw: random.Random) -> tuple[str, str]:
    """Forge a copy of a recording; return what was changed and what became of it."""
    shutil.rmtree(work, ignore_errors=True)
    path = shutil.copytree(base, work / base.name)
    runs = sorted(p.parent for p in path.rglob(EVENTS))
    said = []
    for _ in range(draw.choice([1, 1, 1, 2, 3])):
        if is_session(path) and draw.random() < 0.15:
            said.append(change_session(path, draw))
            continue
        weights, changes = zip(*CHANGES, strict=True)
        (made,) = draw.choices(changes, weights)
        try:
            said.append(made(draw.choice(runs), draw))
        except Exception as error:
            said.append(f"not made ({type(error).__name__})")  # an earlier change broke the file that this one needs
    if is_session(path) and draw.random() < 0.8:
        chain_again(path)
    return "; ".join(said), attempt(path, draw.random())


def chain_again(session: Path) -> None:
    """Bind the runs of a session as they are, so that it is their content that is read."""
    try:
        bind_again(session)
    except (TypeError, KeyError, ValueError, AttributeError, OSError, RecursionError):
        return


def unpacked(folder: Path, into: Path) -> list[Path]:
    """Unpack the small recordings; refused ones and sweeps are left out."""
    found = []
    for archive in sorted(folder.glob("*.tar.gz")):
        name = archive.name.removesuffix(".tar.gz")
        if archive.stat().st_size > LARGEST_BYTES or name.startswith(("refused", "sweep")):
            continue
        with tarfile.open(archive) as packed:
            packed.extractall(into, filter="data")
        found.append(into / name)
    return found


def cost_s(base: Path) -> float:
    """Return how long it takes to report a recording as it is (s of processor time)."""
    attempt(base, 1.0)
    began_s = time.process_time()
    attempt(base, 1.0)
    return time.process_time() - began_s


Found = tuple[Counter[str], dict[str, str]]


def tried(bases: Sequence[Path], costs_s: Sequence[float], numbers: range, seed: int) -> Found:
    """Try some cases; return the counts, and an example of each outcome."""
    np.seterr(all="ignore")
    plugins.names = functools.cache(plugins.names)  # looks into each installed package, and answers alike
    tally: Counter[str] = Counter()
    examples: dict[str, str] = {}
    with tempfile.TemporaryDirectory(dir=bases[0].parents[1]) as place:
        for number in numbers:
            draw = random.Random(f"{seed}:{number}")
            (base,) = draw.choices(bases, [cost**-2 for cost in costs_s])
            what, outcome = one_case(base, Path(place) / "work", draw)
            tally[outcome] += 1
            examples.setdefault(outcome, f"case {number} ({base.name}): {what}")
    return tally, examples


def main() -> int:
    """Try the cases and print the counts; the exit code is 1 when there was a finding."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--cases", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--first", type=int, default=0, help="number of the first case")
    parser.add_argument("--recordings", type=Path, default=Path("tests/golden"))
    parser.add_argument("--only", help="one recording")
    parser.add_argument("--workers", type=int, default=2)
    args = parser.parse_args()
    tally: Counter[str] = Counter()
    examples: dict[str, str] = {}
    began_s = time.monotonic()
    with tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as place:
        bases = [b for b in unpacked(args.recordings, Path(place) / "bases") if args.only in (None, b.name)]
        costs_s = [cost_s(base) for base in bases]
        last = args.first + args.cases
        stretches = [range(k, min(k + CHUNK, last)) for k in range(args.first, last, CHUNK)]
        with ProcessPoolExecutor(args.workers) as pool:
            waiting = [(numbers, pool.submit(tried, bases, costs_s, numbers, args.seed)) for numbers in stretches]
            for numbers, one in waiting:
                try:
                    found, firsts = one.result()
                except BrokenProcessPool:
                    found, firsts = Counter({DIED: 1}), {DIED: f"--first {numbers[0]} --cases {len(numbers)}"}
                tally += found
                examples = firsts | examples
    for outcome, count in tally.most_common():
        print(
            f"{count:7}  {outcome}" + (f"\n         {examples[outcome][:300]}" if outcome.startswith("FINDING") else "")
        )
    findings = sum(count for outcome, count in tally.items() if outcome.startswith("FINDING"))
    took_s = time.monotonic() - began_s
    print(json.dumps({"cases": args.cases, "findings": findings, "seconds": round(took_s, 1), "outcomes": dict(tally)}))
    return 1 if findings else 0


if __name__ == "__main__":
    raise SystemExit(main())
