"""List what is registered, from metadata and source text. Nothing is imported.

Neither ``importlib.metadata`` nor ``ast`` is used: their import takes longer than all else that ``rig --help`` and
``rig list`` need.
"""

import functools
import importlib.util
import re
import sys
from collections.abc import Iterator
from contextlib import suppress
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import Any, NamedTuple

SHOWN = ("devices", "meters", "scenarios", "workloads", "rules", "importers")
_DOCSTRING = re.compile(r"""(?:\s|#.*\n)*[rR]?("{3}|'{3}|"|')\s*(.*?)\s*(?:\1|\n)""")
_ASKED = re.compile(r"^Requires-Dist: *([\w.-]+)(.*)", re.M)
_EXTRA = re.compile(r"""extra\s*==\s*['"](.*?)['"]""")


class Entry(NamedTuple):
    """One entry point: its group without ``rig.``, what it names, and the folder of its package's metadata."""

    group: str
    name: str
    module: str
    attribute: str
    extras: list[str]
    info: Path

    @property
    def package(self) -> str:
        """Return the name of the package."""
        return next(iter(re.findall(r"^Name: *(.*)", _about(self.info), re.M)), self.info.name)


def describe() -> list[dict[str, Any]]:
    """Return a row per plugin: group, name, package, modes, extra, missing packages of the extra, and a first line.

    The first line is from the module's docstring; for sets of rules, which share a module, from the function's.
    """
    packages, found = _packages(), sorted(registered())
    infos = {e.info for e in found}
    asked = {i: [(package, _EXTRA.findall(when)) for package, when in _ASKED.findall(_about(i))] for i in infos}
    rows = []
    for group in SHOWN:
        for e in (e for e in found if e.group == group):
            modes, line = source_facts(e.module, e.attribute if group == "rules" else "")
            needed = [package for extra in e.extras for package, of in asked[e.info] if extra in of]
            missing = [package for package in needed if _plain(package) not in packages]
            row = {"group": group, "name": e.name, "package": e.package, "modes": modes, "extra": ", ".join(e.extras)}
            rows.append(row | {"installed": not missing, "missing": missing, "description": line})
    return rows


def commands_of_others() -> dict[str, str]:
    """Return the module of each registered command by its name."""
    return {e.name: e.module for e in sorted(registered()) if e.group == "commands"}


def _packages() -> dict[str, Path]:
    """Return the folder of the metadata of each installed package, by its plain name; the first on the path counts."""
    found = [info for folder in sys.path for info in Path(folder).glob("*-info")]
    return {_plain(re.split(r"-|\.egg", info.name)[0]): info for info in reversed(found)}


def _plain(package: str) -> str:
    return re.sub(r"[-_.]+", "_", package).lower()


def registered() -> Iterator[Entry]:
    """Yield each entry point of the rig in the installed packages."""
    for info in _packages().values():
        for section in text_in(info / "entry_points.txt").split("[rig.")[1:]:
            group, *lines = section.partition("\n[")[0].splitlines()
            for name, equals, target in (line.partition("=") for line in lines):
                if equals and not name.startswith(("#", ";")):
                    module, attribute, *extras = (*re.findall(r"[^\s:\[\],]+", target), "", "")
                    yield Entry(group.strip("] "), name.strip(), module, attribute, [*filter(None, extras)], info)


@functools.cache
def _about(info: Path) -> str:
    """Return the metadata of a package; the text is kept, because each of its entry points asks for it."""
    return (text_in(info / "METADATA") or text_in(info / "PKG-INFO")).partition("\n\n")[0]


def source_facts(module: str, function: str = "") -> tuple[list[str], str]:
    """Return ``MODES`` of a module's source, and the first line of the docstring of ``function`` or else the module."""
    text = "" if (source := _source_of(module)) is None else text_in(source)
    modes = re.search(r"^MODES *=([^#\n]*)", text, re.M)
    inner = text.partition(f"\ndef {function}(")[2].partition(":\n")[2]
    line = _DOCSTRING.match(inner) or _DOCSTRING.match(text)
    return re.findall(r"\w+", modes[1]) if modes else [], line[2] if line else ""


def _source_of(module: str) -> Path | None:
    """Return the file of a module, if any. Unlike ``find_spec`` of the full name, this imports no package around it."""
    package, *inner = module.split(".")
    spec = _found(package, tuple(sys.path))
    if spec is None:
        return None
    folders = [Path(folder, *inner[:-1]) for folder in spec.submodule_search_locations or ()]
    files = [folder / f"{inner[-1]}.py" for folder in folders] if inner else [Path(spec.origin or "")]
    return next((file for file in files if file.is_file()), None)


@functools.cache
def _found(package: str, path: tuple[str, ...]) -> ModuleSpec | None:
    """Return where a package is; the answer is kept, because many plugins share few packages."""
    return importlib.util.find_spec(package)


def text_in(file: Path) -> str:
    """Return the text of a file; empty if it cannot be read."""
    with suppress(OSError, ValueError):
        return file.read_text(encoding="utf-8")
    return ""
