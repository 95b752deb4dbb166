"""Unpack archives of a submission (.zip, .tar.gz), within limits, into a separate folder."""

import gzip
import shutil
import struct
import tarfile
import tempfile
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO, Self

from reports.audit.folder.reading import FILES_MOST, clean, inside, refuse
from rig.errors import StoreError

BYTES_MOST = 64 << 30
SMALL, RATIO_MOST = 64 << 20, 200
"""An archive is refused if it unpacks to over ``SMALL`` bytes and to over ``RATIO_MOST`` times its own size.
Recordings shrink far less."""
SUFFIXES = (".zip", ".tar.gz", ".tgz")
DAMAGED = "Fetch it again, and compare its size and its hash with those at its source"
FINDER = "__MACOSX/"
"""The folder that the Finder of macOS adds to a .zip."""
HOSTILE = "Do not unpack it: `rig submit` makes no such archive"
_BROKEN = (
    tarfile.TarError, zipfile.BadZipFile, zlib.error, struct.error, EOFError, OSError, RuntimeError,
    NotImplementedError, ValueError,
)  # fmt: skip
HEADER_BYTES = 1 << 10
"""The longest header of a .tar beside its block of 512 bytes; it holds a long path."""
BOUNDED = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
"""The compressions of which ``zipfile`` unpacks no more than it is asked for."""


class _Header(tarfile.TarInfo):
    """A header of a .tar; a long one is refused, because ``tarfile`` may search it in quadratic time."""

    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> Self:
        found = super().frombuf(buf, encoding, errors)
        if found.size > HEADER_BYTES and not found.isreg():
            refuse("it", f"has a header of {found.size} bytes")
        return found


@contextmanager
def unpacked(path: Path) -> Iterator[Path]:
    """Yield the path itself, or for an archive its unpacked folder, which exists until the block ends."""
    if not (path.is_file() and path.name.lower().endswith(SUFFIXES)):
        yield path
        return
    with tempfile.TemporaryDirectory(prefix="audit-") as folder:
        yield unpack(path, Path(folder) / path.name)


def unpack(path: Path, folder: Path) -> Path:
    """Unpack an archive into ``folder``; return the folder in it. Refuse damage, links, outside paths, and bombs."""
    folder.mkdir(parents=True)
    try:
        with ExitStack() as stack:
            for name, source in _members(path, stack):
                with source:
                    target = inside(folder, name)
                    target.parent.mkdir(parents=True, exist_ok=True)
                    with target.open("xb") as sink:
                        shutil.copyfileobj(source, sink)
    except StoreError as error:
        refuse(f"{path.name}:", error.message, path.name, HOSTILE)
    except _BROKEN as error:
        refuse(path.name, f"is damaged, or no archive: {clean(error)}", path.name, DAMAGED)
    inner = sorted(folder.iterdir())
    if not inner:
        refuse(path.name, "is an archive without a file", path.name, DAMAGED)
    return inner[0] if len(inner) == 1 and inner[0].is_dir() else folder


def _members(path: Path, stack: ExitStack) -> Iterator[tuple[str, IO[bytes]]]:
    """Yield the regular files of an archive, each with its path and its content."""
    most = min(BYTES_MOST, max(SMALL, RATIO_MOST * path.stat().st_size))
    bomb = f"is a bomb: it unpacks to more than {most} bytes"
    if path.name.lower().endswith(".zip"):
        archive = stack.enter_context(zipfile.ZipFile(path))
        if sum(entry.file_size for entry in archive.infolist()) > most:  # no entry is read beyond its stated size
            refuse("it", bomb)
        if odd := next((entry for entry in archive.infolist() if entry.compress_type not in BOUNDED), None):
            refuse("it", f"holds {odd.filename!r}, which is neither stored nor deflated")
        _check_count(len(archive.infolist()))
        for entry in archive.infolist():
            name = entry.filename.replace("\\", "/")  # as some programs of Windows write it
            if not name.endswith("/") and not name.startswith(FINDER):
                yield name, archive.open(entry)
        return
    with gzip.open(path) as whole:  # tarfile treats a damaged header as the end, and checks no checksum
        while whole.read(1 << 20):
            if whole.tell() > most:
                refuse("it", bomb)
    packed = stack.enter_context(tarfile.open(path, "r:gz", tarinfo=_Header))  # noqa: SIM115
    members: list[tarfile.TarInfo] = []
    for member in packed:  # all headers first, so that an archive of too many files writes nothing
        members.append(member)
        _check_count(len(members))
    for member in members:
        source = packed.extractfile(member) if member.isreg() and not member.issparse() else None
        if source is not None:
            yield member.name.removeprefix("./"), source
        elif not member.isdir():
            refuse("it", f"holds {member.name!r}, which is a link or no regular file")


def _check_count(members: int) -> None:
    if members > FILES_MOST:
        refuse("it", f"holds more than {FILES_MOST} files")
