"""Archives of a submission (.zip, .tar.gz), unpacked within bounds into a folder of one's own."""

from __future__ import annotations

import gzip
import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import IO

from reports.audit.files import FILES_MOST, clean, inside, refuse
from rig.errors import StoreError

BYTES_MOST = 64 << 30
RATIO_MOST = 200
"""Unpacked bytes for each byte of the archive; recordings shrink by less, and bombs by far more."""
SMALL = 64 << 20
SUFFIXES = (".zip", ".tar.gz", ".tgz")
DAMAGED = "Fetch it again, and compare its size and its hash with those at its source"
HOSTILE = "Do not unpack it: `rig submit` makes no such archive"
_BROKEN = (tarfile.TarError, zipfile.BadZipFile, zlib.error, EOFError, OSError, RuntimeError, NotImplementedError)


def is_archive(path: Path) -> bool:
    """Whether a file is called as archives are."""
    return path.is_file() and path.name.lower().endswith(SUFFIXES)


def unpack(path: Path, folder: Path) -> Path:
    """Unpack an archive into ``folder``; the folder that it holds. Refuses damage, links, ways out, and bombs."""
    most = min(BYTES_MOST, max(SMALL, RATIO_MOST * path.stat().st_size))
    folder.mkdir(parents=True)
    try:
        with ExitStack() as stack:
            for count, (name, source) in enumerate(_members(path, stack, most)):
                if count >= FILES_MOST:
                    refuse(path.name, f"holds more than {FILES_MOST} files", remedy=HOSTILE)
                target = inside(folder, name)
                target.parent.mkdir(parents=True, exist_ok=True)
                if target.exists():
                    refuse(path.name, f"holds {name!r} twice", remedy=HOSTILE)
                with source, target.open("xb") as sink:
                    most -= _copied(source, most, path, sink)
    except StoreError as error:
        what = error.message if error.message.startswith(path.name) else f"{path.name}: {error.message}"
        raise StoreError(what, field="audit", value=path.name, remedy=error.remedy or HOSTILE) from error
    except _BROKEN as error:
        refuse(path.name, f"is damaged, or no archive: {clean(error)}", remedy=DAMAGED)
    inner = sorted(folder.iterdir())
    if not inner:
        refuse(path.name, "is an archive without a file", remedy=DAMAGED)
    return inner[0] if len(inner) == 1 and inner[0].is_dir() else folder


def _copied(source: IO[bytes] | gzip.GzipFile, most: int, path: Path, sink: IO[bytes] | None = None) -> int:
    """How many bytes a stream holds; they are copied to ``sink``. Refuses more than ``most``."""
    count = 0
    while part := source.read(1 << 20):
        count += len(part)
        if count > most:
            refuse(path.name, f"is a bomb: it unpacks to more than {most} bytes", remedy=HOSTILE)
        if sink is not None:
            sink.write(part)
    return count


def _members(path: Path, stack: ExitStack, most: int) -> Iterator[tuple[str, IO[bytes]]]:
    """The regular files of an archive, each with its path and its content."""
    if path.name.lower().endswith(".zip"):
        archive = stack.enter_context(zipfile.ZipFile(path))
        for entry in archive.infolist():
            if entry.external_attr >> 28 not in (0, 0x8, 0x4):
                refuse(path.name, f"holds {entry.filename!r}, which is a link or no regular file", remedy=HOSTILE)
            if not entry.is_dir():
                yield entry.filename, archive.open(entry)
        return
    with gzip.open(path) as whole:  # tarfile takes a damaged header for the end, and looks at no checksum
        _copied(whole, most, path)
    for member in (packed := stack.enter_context(tarfile.open(path, "r:gz"))):  # noqa: SIM115
        source = packed.extractfile(member) if member.isreg() else None
        if source is not None:
            yield member.name.removeprefix("./"), source
        elif not member.isdir():
            refuse(path.name, f"holds {member.name!r}, which is a link or no regular file", remedy=HOSTILE)
