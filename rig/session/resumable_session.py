"""Record a session so that it can be resumed: each run is added to ``session.json`` (bound) when it ends.

Until the session is complete, its request is in ``request.json``.
"""

import re
import secrets
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import takewhile
from pathlib import Path
from tempfile import TemporaryFile

import msgspec

from rig.bench.bench_file_fields import FILE as BENCH
from rig.bench.request import Request
from rig.errors import Interrupted, RigError, StoreError, UsageError
from rig.recording.anonymise import without_place
from rig.recording.disk.files import BROKEN, Folder, made, set_aside, storing
from rig.recording.disk.size_limits import read_bounded
from rig.recording.events import SessionLink
from rig.recording.layout import DERIVED, EVENTS, GENESIS, sha256_of
from rig.recording.read_events import read_log
from rig.recording.session_json import REQUEST, SizeProbe, bind, is_session, open_session
from rig.session.locks import holder_of, locked
from rig.session.rate_and_size_search import PlannedRun
from rig.session.trusted_requests import check_continued, code_of_continued, note
from rig.terminal import command, tell

LOCK = ".lock"
"""The lock file in a session's directory, so that only one process records the session."""


LEAST_ROOM = 1 << 16
"""The least free disk space in bytes for a run."""


@dataclass
class Book:
    """The runs of a session so far, each with name and purpose. ``of`` is how many there will be; None in a search."""

    folder: Path
    id: str
    runs: list[tuple[str, str]] = field(default_factory=list)
    probes: list[SizeProbe] = field(default_factory=list)
    repeated: list[str] = field(default_factory=list)
    of: int | None = None
    kept: int = 0
    """Number of runs that were recorded before the session was resumed."""
    begin: Callable[[], None] = lambda: None
    """Makes the directory before the first run is recorded."""
    given: int = 0
    """The number of the run that last got a place in the session."""

    def link(self) -> SessionLink:
        """Return the place of the next run in the session, with the hash of the run before."""
        self.begin()
        self.given = len(self.runs) + 1
        before = sha256_of(self.folder / self.runs[-1][0] / EVENTS) if self.runs else GENESIS
        return SessionLink(id=self.id, number=self.given, of=self.of, previous=before)

    def known(self, planned: PlannedRun, local_code: Mapping[str, str]) -> Path | None:
        """Return the directory of a run if it was recorded before the session was resumed, else None.

        Tells the user if it was recorded with other ``local_code``. For a probe whose recording ended with an error,
        raises a ``RigError`` with the same message.
        """
        if (planned.name, planned.purpose) not in self.runs[: self.kept]:
            return None
        path = self.folder / planned.name
        log = read_log(path)
        stop, code = log.stop, log.start.environment.local_code if log.start.environment else local_code
        now = {file if file in code else without_place(file): digest for file, digest in local_code.items()}
        if changed := sorted({file for file, _ in code.items() ^ now.items()}):
            what = f"{', '.join(changed)} changed since run {planned.name} was recorded"
            tell(f"{what}: the session then mixes two versions. Measure anew if the change concerns the measured work")
        if stop is not None and stop.error is not None:
            raise RigError(stop.error.message, remedy=stop.error.remedy or "")
        return path

    def add(self, planned: PlannedRun) -> None:
        """Bind a run that has ended, even with an error, unless it ended before its first line was written."""
        begun = self.given > len(self.runs) and Folder.at(self.folder).stat(f"{planned.name}/{EVENTS}")
        if begun and begun.st_size:
            self.runs.append((planned.name, planned.purpose))
            with suppress(StoreError):  # ``opened`` binds it again at the end
                self.bind(seal=False)

    def bind(self, *, seal: bool) -> None:
        """Write ``session.json`` with the runs so far."""
        bind(self.folder, self.runs, self.probes, self.repeated, seal=seal)


@contextmanager
def opened(folder: Path, request: Request, resume: bool) -> Iterator[Book]:
    """Yield the book of a new or a resumed session in ``folder``; seal the session at the end.

    Nothing of a new session is written before ``begin``. Raises ``SetupError`` if another process is recording it.
    """
    with ExitStack() as held:
        if resume:
            held.enter_context(_held(folder))
            _tell_of_bench(request)
        book = _reopened(folder) if resume else Book(folder, secrets.token_hex(16))
        book.begin = cache(lambda: None if resume else _begin(held, book, request))
        try:
            yield book
        except BaseException:
            with suppress(StoreError):  # the first error says more
                if resume or book.runs:
                    book.bind(seal=True)
            raise
        (folder / REQUEST).unlink(missing_ok=True)
        book.bind(seal=True)


def _tell_of_bench(request: Request) -> None:
    """Tell the user if the bench file changed since the session began. The session goes on with the file as it was."""
    place = request.places.get("device", {}).get("", "")
    with suppress(OSError):
        path = Path(re.sub(r":\d+: .*", "", place))
        if place and BENCH in request.artifacts and read_bounded(path) != request.artifacts[BENCH]:
            what = f"{path} changed since the session began; the session goes on with the file as it was"
            tell(f"{what}. Measure anew if the change concerns this measurement")


def _begin(held: ExitStack, book: Book, request: Request) -> None:
    """Make the directory of a new session, and store the request."""
    with storing(book.folder):
        made(book.folder)
    held.enter_context(_held(book.folder))
    unused(book.folder)
    content = msgspec.json.format(msgspec.json.encode(request, enc_hook=str), indent=1)
    with storing(book.folder / REQUEST):
        Folder.at(book.folder).write(REQUEST, content, sync=True)
    if request.code:
        note(book.folder / REQUEST, content)
    book.bind(seal=False)


def unused(folder: Path) -> None:
    """Raise ``StoreError`` for a file, a directory with any file but a session's lock, and a path inside a session."""
    lock, inside = folder / LOCK, is_session(folder.absolute().parent)
    if inside or (folder.exists() and (not folder.is_dir() or {*folder.iterdir()} - {lock, holder_of(lock)})):
        what = f"{folder} {'lies in a session' if inside else 'is no empty directory'}"
        raise StoreError(what, field="out", value=str(folder), remedy="Name a new directory with --out")


def writable(folder: Path) -> None:
    """Raise ``StoreError`` if nothing can be written where ``folder`` is or will be."""
    with storing(folder):
        there = next((place for place in (folder, *folder.parents) if place.exists()), Path())
        with TemporaryFile(dir=there) as file:
            file.write(bytes(LEAST_ROOM))


@contextmanager
def _held(folder: Path) -> Iterator[None]:
    """Lock a session for this process."""
    lock = folder / LOCK
    with locked(lock, f"the session {folder}", wait=False):
        try:
            yield
        finally:
            for file in (lock, holder_of(lock)):
                with suppress(FileNotFoundError, PermissionError):  # Windows removes the lock when it is released
                    file.unlink()


def go_on(folder: Path) -> str:
    """Return the command that resumes an interrupted session."""
    foreign: dict[str, str] = {}
    with suppress(StoreError):
        found, content = _stored(folder)
        foreign = code_of_continued(found.code, folder / REQUEST, content)
    return command("measure", "--resume", folder, *(["--trust"] if foreign else []))


def request_in(folder: Path, trust: bool) -> Request:
    """Return the request of an interrupted session.

    Raises ``UsageError`` for a complete session and for code that is not trusted. Raises ``StoreError`` for a directory
    without a session, and for a request that cannot be read.
    """
    if not is_session(folder):
        what, remedy = f"{folder} is not a session", "Name the directory that `rig measure --out` wrote"
        if (folder / EVENTS).is_file():
            remedy = "It is one run, which cannot go on: name the session that holds it, or measure again"
        raise StoreError(what, field="resume", value=str(folder), remedy=remedy)
    if not (folder / REQUEST).is_file():
        open_session(folder)
        what, remedy = f"{folder} has nothing left to record", f"Report it: {command('report', folder)}"
        raise UsageError(what, field="resume", value=str(folder), remedy=remedy)
    found, content = _stored(folder)
    check_continued(found.code, folder / REQUEST, content, trust)
    return replace(found, out=folder)


def _stored(folder: Path) -> tuple[Request, bytes]:
    """Return the request of a session, and the content of its file."""
    try:
        content = read_bounded(folder / REQUEST)
        found: Request = msgspec.json.decode(content, type=Request, dec_hook=lambda kind, value: kind(value))
    except (OSError, ValueError, TypeError, RecursionError) as error:
        what, remedy = f"{folder / REQUEST} cannot be read: {error}", "Measure again into a new directory"
        raise StoreError(what, field="resume", value=str(folder), remedy=remedy) from error
    return found, content


def _reopened(folder: Path) -> Book:
    """Return the book of an interrupted session, with the runs before the first bad one; set the other runs aside.

    A run is removed from ``session.json`` before it is set aside, so that the session can still be resumed if this
    process is killed in between.
    """
    found = open_session(folder)
    runs = [(path.name, purpose) for path, purpose in found.runs]
    keep = list(takewhile(lambda run: _good(folder / run[0], run[1]), runs))
    link = read_log(folder / keep[0][0]).start.session if keep else None
    book = Book(folder, secrets.token_hex(16) if link is None else link.id, keep, kept=len(keep))
    book.repeated += found.repeated
    book.bind(seal=False)
    stays = {*dict(keep), DERIVED, BROKEN}
    for path in sorted(p for p in folder.iterdir() if p.is_dir() and p.name not in stays):
        set_aside(folder, path, path.name)
    there = (path.relative_to(folder).as_posix() for path in sorted((folder / BROKEN).glob("[!.]*")))
    book.repeated = list(dict.fromkeys([*found.repeated, *there]))
    book.bind(seal=False)
    return book


def _good(run: Path, purpose: str) -> bool:
    """Return whether a run can be kept. The failure of a probe is a result, unless the probe was interrupted."""
    stop = read_log(run).stop
    if stop is None or stop.error is None:
        return stop is not None
    return purpose == "probe" and stop.error.error != Interrupted.__name__
