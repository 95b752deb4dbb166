"""Archives of a submission (.zip, .tar.gz), unpacked within bounds into a folder of one's own."""

from __future__ import annotations

import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import IO

from reports.audit.files import FILES_MOST, clean, inside, refuse

BYTES_MOST = 64 << 30
RATIO_MOST = 200
"""Unpacked bytes for each byte of the archive; recordings shrink by less, and bombs by far more."""
SMALL = 64 << 20
SUFFIXES = (".zip", ".tar.gz", ".tgz")


def is_archive(path: Path) -> bool:
    """Whether a file is called as archives are."""
    return path.is_file() and path.name.lower().endswith(SUFFIXES)


def unpack(path: Path, folder: Path) -> Path:
    """Unpack an archive below ``folder``; the folder that it holds. Refuses links, paths that lead out, and bombs."""
    most = min(BYTES_MOST, max(SMALL, RATIO_MOST * path.stat().st_size))
    written = 0
    try:
        with ExitStack() as stack:
            for count, (name, source) in enumerate(_members(path, stack)):
                if count >= FILES_MOST:
                    refuse(path.name, f"holds more than {FILES_MOST} files")
                target = inside(folder, name)
                target.parent.mkdir(parents=True, exist_ok=True)
                with source, target.open("xb") as sink:
                    while part := source.read(1 << 20):
                        written += len(part)
                        if written > most:
                            refuse(path.name, f"unpacks to more than {most} bytes")
                        sink.write(part)
    except (
        tarfile.TarError,
        zipfile.BadZipFile,
        zlib.error,
        EOFError,
        OSError,
        RuntimeError,
        NotImplementedError,
    ) as error:
        refuse(path.name, f"cannot be unpacked: {clean(error)}")
    inner = sorted(folder.iterdir())
    return inner[0] if len(inner) == 1 and inner[0].is_dir() else folder


def _members(path: Path, stack: ExitStack) -> Iterator[tuple[str, IO[bytes]]]:
    """The regular files of an archive, each with its path and its content."""
    if path.name.lower().endswith(".zip"):
        archive = stack.enter_context(zipfile.ZipFile(path))
        for entry in archive.infolist():
            kind = entry.external_attr >> 28
            if kind not in (0, 0x8, 0x4):
                refuse(entry.filename, "is a link or no regular file")
            if not entry.is_dir():
                yield entry.filename, archive.open(entry)
        return
    packed = stack.enter_context(tarfile.open(path, "r|gz"))  # noqa: SIM115
    for member in packed:
        if member.isdir():
            continue
        source = packed.extractfile(member) if member.isreg() else None
        if source is None:
            refuse(member.name, "is a link or no regular file")
        yield member.name.removeprefix("./"), source
