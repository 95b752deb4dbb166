"""List what is registered, from metadata and source text. Nothing is imported."""

from __future__ import annotations

import ast
import functools
import importlib.util
import re
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

from rig.errors import DISTRIBUTION

SHOWN = ("devices", "meters", "scenarios", "workloads", "rules", "importers")


def describe() -> list[dict[str, Any]]:
    """Return a row per plugin: group, name, package, modes, extra, missing packages of the extra, and a first line.

    The first line is that of the module's docstring, or of the function's for sets of rules, which share a module.
    """
    from rig.plugins import owner, registered  # slow, and not needed for ``source_facts``, which `rig --help` uses

    rows = []
    for group in SHOWN:
        for entry in registered(group):
            modes, line = source_facts(entry.module)
            if group == "rules":
                line = _line_of(entry.module, entry.attr) or line
            missing = [p for extra in entry.extras for p in _packages(extra) if not _installed(p)]
            rows.append(
                {
                    "group": group,
                    "name": entry.name,
                    "package": owner(entry),
                    "modes": modes,
                    "extra": ", ".join(entry.extras),
                    "installed": not missing,
                    "missing": missing,
                    "description": line,
                }
            )
    return rows


def commands_of_others() -> dict[str, str]:
    """Return the module of each registered command by its name, from the files of packages.

    ``importlib.metadata`` takes longer to import than everything else that `rig --help` needs.
    """
    found: dict[str, str] = {}
    for file in (file for folder in sys.path for file in Path(folder).glob("*-info/entry_points.txt")):
        with suppress(OSError, ValueError):
            own = file.read_text(encoding="utf-8").partition("[rig.commands]\n")[2].partition("\n[")[0]
            pairs = (line.partition("=") for line in own.splitlines())
            found |= {name.strip(): module.partition("[")[0].strip() for name, _, module in pairs if module}
    return dict(sorted(found.items()))


def source_facts(module: str) -> tuple[list[str], str]:
    """Return ``MODES`` and the docstring's first line from the head of a module's source, without running it."""
    source = _source_of(module)
    if source is None:
        return [], ""
    text = source.read_text(encoding="utf-8")
    head = re.split(r"^(?:def|class|async|@)", text, maxsplit=1, flags=re.M)[0]
    try:
        tree = ast.parse(head)
    except SyntaxError:  # the head of a file may end inside a statement
        tree = ast.parse(text)
    modes: list[str] = []
    for node in tree.body:
        if isinstance(node, ast.Assign) and any(isinstance(t, ast.Name) and t.id == "MODES" for t in node.targets):
            modes = list(ast.literal_eval(node.value))
    return modes, _first_line(tree)


def _first_line(node: ast.Module | ast.FunctionDef) -> str:
    # cleaning a docstring would cost the import of ``inspect``
    return (ast.get_docstring(node, clean=False) or "").strip().split("\n")[0]


def _line_of(module: str, function: str) -> str:
    """Return the first line of a function's docstring, from its module's source; "" if there is none."""
    source = _source_of(module)
    body = ast.parse(source.read_text(encoding="utf-8")).body if source else []
    found = [node for node in body if isinstance(node, ast.FunctionDef) and node.name == function]
    return _first_line(found[0]) if found else ""


def _source_of(module: str) -> Path | None:
    """Return the file of a module. Unlike ``find_spec`` of the full name, this imports no package around it."""
    package, *inner = module.split(".")
    spec = importlib.util.find_spec(package)
    if spec is None:
        return None
    folders = [Path(folder, *inner[:-1]) for folder in spec.submodule_search_locations or ()]
    files = [folder / f"{inner[-1]}.py" for folder in folders] if inner else [Path(spec.origin or "")]
    return next((file for file in files if file.is_file()), None)


@functools.cache
def _required() -> list[str]:
    """Return the requirements of this distribution with extras; parsing its metadata takes milliseconds."""
    import importlib.metadata

    try:
        return importlib.metadata.requires(DISTRIBUTION) or []
    except importlib.metadata.PackageNotFoundError:
        return []


def _packages(extra: str) -> list[str]:
    wanted = re.compile(rf"""extra\s*==\s*['"]{re.escape(extra)}['"]""")
    return [re.split(r"[\s\[<>=!~;]", text, maxsplit=1)[0] for text in _required() if wanted.search(text)]


@functools.cache
def _installed(package: str) -> bool:
    import importlib.metadata

    try:
        importlib.metadata.distribution(package)
    except importlib.metadata.PackageNotFoundError:
        return False
    return True
