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
from typing import Any

SHOWN = ("devices", "meters", "scenarios", "workloads", "rules", "importers")
_DOCSTRING = re.compile(r"""(?:\s|#.*\n)*[rR]?("{3}|'{3}|"|')\s*(.*?)\s*(?:\1|\n)""")
_ASKED = re.compile(r"^Requires-Dist: *([\w.-]+)(.*)", re.M)
_EXTRA = re.compile(r"""extra\s*==\s*['"](.*?)['"]""")


def describe() -> list[dict[str, Any]]:
    """Return a row per plugin: group, name, package, modes, extra, missing packages of the extra, and a first line.

    The first line is from the module's docstring; for sets of rules, which share a module, from the function's.
    """
    packages = _packages()
    found = sorted(_registered(packages))
    infos = {info for *_, info in found}
    about = {i: (text_in(i / "METADATA") or text_in(i / "PKG-INFO")).partition("\n\n")[0] for i in infos}
    asked = {i: [(package, _EXTRA.findall(when)) for package, when in _ASKED.findall(about[i])] for i in about}
    rows = []
    for group in SHOWN:
        for _, name, target, info in (row for row in found if row[0] == group):
            module, attribute, *extras = re.findall(r"[^\s:\[\],]+", target)
            modes, line = source_facts(module, attribute if group == "rules" else "")
            needed = [package for extra in extras for package, of in asked[info] if extra in of]
            missing = [package for package in needed if _plain(package) not in packages]
            package = next(iter(re.findall(r"^Name: *(.*)", about[info], re.M)), info.name)
            row = {"group": group, "name": name, "package": package, "modes": modes, "extra": ", ".join(extras)}
            rows.append(row | {"installed": not missing, "missing": missing, "description": line})
    return rows


def commands_of_others() -> dict[str, str]:
    """Return the module of each registered command by its name."""
    found = sorted(_registered(_packages()))
    return {name: module.partition("[")[0].strip() for group, name, module, _ in found if group == "commands"}


def _packages() -> dict[str, Path]:
    """Return the folder of the metadata of each installed package, by its plain name; the first on the path counts."""
    found = [info for folder in sys.path for info in Path(folder).glob("*-info")]
    return {_plain(re.split(r"-|\.egg", info.name)[0]): info for info in reversed(found)}


def _plain(package: str) -> str:
    return re.sub(r"[-_.]+", "_", package).lower()


def _registered(packages: dict[str, Path]) -> Iterator[tuple[str, str, str, Path]]:
    """Yield group, name and target of each entry point of the rig, with the metadata of its package."""
    for info in packages.values():
        for section in text_in(info / "entry_points.txt").split("[rig.")[1:]:
            group, *lines = section.partition("\n[")[0].splitlines()
            for name, equals, target in (line.partition("=") for line in lines):
                if equals:
                    yield group.strip("] "), name.strip(), target.strip(), info


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
