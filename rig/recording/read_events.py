"""Read ``events.jsonl``: verify its hashes, decode each line once, and check the listed files.

Each line has the hash of the line before (the chain), and a separate file has the hash of all lines (the seal).
"""

import hashlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, cast

import msgspec
from msgspec import Struct

from rig.errors import DataError, IntegrityError, StoreError
from rig.recording.disk.decoding import decode, strict
from rig.recording.disk.files import IN_MEMORY, Folder, Opened
from rig.recording.disk.size_limits import EVENTS_BYTES, LINE_BYTES, START_BYTES, check_line
from rig.recording.events import SCHEMA, Brackets, Line, SampleNetwork, SessionLink, Start, Stop, malformed
from rig.recording.layout import EVENTS, GENESIS, SEAL, run_folder
from rig.recording.validation import went_back

TABLE_BYTES = 1 << 32
"""A table of at most this size is read as a whole."""
AT_THE_SAME_TIME_BYTES = 1 << 25


class _Head(msgspec.Struct):
    type: str
    seq: int
    prev: str
    schema: Any = None


class Log(Struct, frozen=True):
    """The verified and decoded lines of ``events.jsonl``."""

    start: Start
    lines: tuple[bytes, ...]
    """Every line of events.jsonl as it is in the file, including lines of unknown types."""
    events: tuple[Line, ...]
    """Every line between start and stop whose type is known."""
    stop: Stop | None
    sealed: bool
    digest: str


def read_log(run: Path | Folder) -> Log:
    """Read ``events.jsonl``: verify chain and seal first, then decode each line by its type.

    Raises what ``open_run`` raises.
    """
    folder = run_folder(run)
    path, data = folder.path, folder.read(EVENTS, EVENTS_BYTES)
    heads, lines = _chained(path, data)
    digest = hashlib.sha256(data).hexdigest()
    sealed = _seal(folder, digest)
    if heads[0].type != "start":
        raise altered(path, f"{EVENTS} does not begin with a start line")
    schema = heads[0].schema
    if schema != SCHEMA:
        what = f"{path} has schema {repr(schema)[:100]}"
        raise StoreError(what, field="schema", value=schema, remedy=f"This version reads {SCHEMA}")
    decoded = [decode(line, head.type, head.seq) for line, head in zip(lines, heads, strict=True)]
    known = [line for line in decoded if line is not None]
    _check_counters(known)
    start, stop = known[0], known[-1] if isinstance(known[-1], Stop) else None
    events = known[1:] if stop is None else known[1:-1]
    return Log(cast(Start, start), tuple(lines), tuple(events), stop, sealed, digest)


class _First(msgspec.Struct):
    purpose: str = "all"
    session: SessionLink | None = None


def first_line(path: Path, events: bytes) -> tuple[str, SessionLink | None]:
    """Return the purpose of the run at ``path`` and its place in its session, from the content of its ``events.jsonl``.

    Raises ``StoreError`` if the first line cannot be read.
    """
    try:
        line = events[: LINE_BYTES + 1].partition(b"\n")[0]
        check_line(line, 0)
        found = msgspec.json.decode(line, type=_First)
    except (ValueError, RecursionError) as error:
        raise malformed(f"the first line of {path / EVENTS}", f"cannot be read: {error}", str(path), "start") from error
    return found.purpose, found.session


def _check_counters(lines: Sequence[Line]) -> None:
    """Raise ``DataError`` if the counter of a clock went back between two brackets."""
    last: dict[str, tuple[int, int, int]] = {}
    for line in (line for line in lines if isinstance(line, Brackets)):
        for row in line.rows:
            before = last.setdefault(line.clock, row)
            if went_back(before, row):
                what = f"the clock {line.clock!r} went back from {before[1]} to {row[1]}"
                remedy = "Unwrap its counter, and do not reset it during a run"
                raise DataError(what, field="brackets", value=line.clock, remedy=remedy)
            last[line.clock] = row


def check_networks(log: Log, sample_ids: Callable[[], list[str]]) -> None:
    """Raise ``StoreError`` for a second network of one sample, and for a network of a sample that the run lacks.

    A run that did not end as planned may lack its last samples, so only the first check applies to it.
    """
    own = [event.sample_id for event in log.events if isinstance(event, SampleNetwork)]
    whole = own and log.stop is not None and log.stop.error is None
    known = set(sample_ids() if whole else own)
    for k, sample_id in enumerate(own):
        if sample_id in known:
            known.remove(sample_id)
            continue
        number = [n for n, line in enumerate(log.lines) if msgspec.json.decode(line, type=_Head).type == "network"][k]
        what = "which has one already" if sample_id in own[:k] else "which the run does not have"
        said, shown = f"the network line (line {number + 1} of events.jsonl)", sample_id[:80]
        raise malformed(said, f"is of sample {shown!r}, {what}", shown, "network")


def _chained(path: Path, data: bytes) -> tuple[list[_Head], list[bytes]]:
    """Verify the chain; return the head of each line, and the lines. A last line that a crash cut off is left out."""
    lines = data.split(b"\n")
    heads: list[_Head] = []
    prev = GENESIS
    for number, line in enumerate(lines):
        check_line(line, number)
        try:
            head = msgspec.convert(strict(line), _Head)
        except msgspec.ValidationError as error:
            raise altered(path, f"{EVENTS} line {number + 1} is not an event") from error
        except (ValueError, RecursionError) as error:
            if number == len(lines) - 1:
                break  # the end of the log, or a line that a crash cut off
            raise altered(path, f"{EVENTS} line {number + 1} is not JSON: {error}") from error
        if head.seq != number or head.prev != prev:
            what = f"{EVENTS} line {number + 1} does not follow from the line before{converted(data)}"
            raise altered(path, what)
        prev = hashlib.sha256(line).hexdigest()
        heads.append(head)
    if not heads:
        raise StoreError(f"{path / EVENTS} is empty", field="run", value=str(path), remedy="Nothing was recorded")
    ends = [head.seq for head in heads if head.type == "stop"]
    if ends and (ends[0] < len(heads) - 1 or lines[len(heads) :] not in ([], [b""])):
        raise altered(path, f"{EVENTS} has lines after its stop line")
    return heads, lines[: len(heads)]


def _seal(folder: Folder, digest: str) -> bool:
    if not folder.has(SEAL):
        return False
    if folder.read(SEAL, START_BYTES) != f"{digest}  {EVENTS}\n".encode():
        raise altered(folder.path, f"{EVENTS} differs from its seal")
    return True


def verified(folder: Folder, stop: Stop | None, present: Sequence[str] = ()) -> dict[str, Opened]:
    """Verify the hash of every file that the stop line lists, and return the open Arrow files among ``present``.

    They are later read through the same file descriptor, so that nobody can exchange them. Raises ``IntegrityError``,
    also for a file that is missing, or present but not listed.
    """
    listed = {} if stop is None else stop.files
    for name in listed:
        if not folder.has(name):
            raise altered(folder.path, f"{name} is missing")

    def opened(name: str) -> Opened | None:
        table = name.endswith(".arrows") and "/" not in name
        file = Opened(folder, name, TABLE_BYTES if table else IN_MEMORY)
        if name in listed and file.sha256() != listed[name]:
            raise altered(folder.path, f"{name} differs from what was recorded")
        return file if name.endswith(".arrows") and name in present else None

    names = [*dict.fromkeys((*listed, *present))]
    every: Iterator[Opened | None] = map(opened, names)
    if sum(entry.st_size for name in names if (entry := folder.stat(name)) is not None) > AT_THE_SAME_TIME_BYTES:
        from concurrent.futures import ThreadPoolExecutor  # a short run is hashed before this is imported

        with ThreadPoolExecutor() as pool:  # the traces of several rails are hashed at the same time
            every = pool.map(opened, names)
    found = dict(zip(names, every, strict=True))
    for name in present if stop is not None else ():
        if name not in listed:
            raise altered(folder.path, f"the stop line does not list {name}")
    return {name: file for name, file in found.items() if file is not None}


def converted(data: bytes) -> str:
    """Return the end of a message about changed bytes: that line ends were converted, or nothing."""
    return "" if b"\r\n" not in data else ": its line ends were converted, which `* -text` in .gitattributes prevents"


def altered(path: Path, what: str) -> IntegrityError:
    """Return the error for a recording whose bytes were changed after it was written."""
    remedy = "Restore the original recording; no figure is computed from an altered one"
    return IntegrityError(f"{path} was altered: {what}", field="run", value=str(path), remedy=remedy)
