"""``rig list``: what is registered, read from metadata and source text, nothing imported."""

from __future__ import annotations

import ast
import importlib.metadata
import importlib.util
import json
import re
from pathlib import Path
from typing import Any

from rig.errors import UnknownNameError
from rig.plugins import load, names, options_of

SHOWN = ("devices", "meters", "scenarios", "workloads", "rules", "importers")
DISTRIBUTION = "neurorig"


def describe() -> list[dict[str, Any]]:
    """One row per plugin: group, name, modes, extra, whether its packages are installed, first line."""
    rows = []
    for group in SHOWN:
        for name, entry in names(group).items():
            modes, line = _source_facts(entry.module)
            missing = [p for extra in entry.extras for p in _packages(extra) if not _installed(p)]
            rows.append(
                {
                    "group": group,
                    "name": name,
                    "modes": modes,
                    "extra": ", ".join(entry.extras),
                    "installed": not missing,
                    "missing": missing,
                    "description": line,
                }
            )
    return rows


def table(rows: list[dict[str, Any]]) -> str:
    """The rows as aligned text."""
    lines = []
    for group in SHOWN:
        lines.append(f"{group}")
        for r in (r for r in rows if r["group"] == group):
            extra = f"extra {r['extra']}: {'installed' if r['installed'] else 'missing'}" if r["extra"] else "built in"
            modes = ", ".join(r["modes"]) or "-"
            lines.append(f"  {r['name']:16} {modes:20} {extra:24} {r['description']}")
    lines.append("\n`rig list NAME` shows the options of one; path.py:function names one of your own.")
    return "\n".join(lines) + "\n"


def options_text(name: str, as_json: bool) -> str:
    """The options of every plugin of this name. Raises ``UnknownNameError``."""
    found = {group: load(group, name) for group in (*SHOWN, "plants") if name in names(group)}
    if ".py:" in name:
        found = {"functions": load("devices", name)}
    if not found:
        raise UnknownNameError("name", name, sorted({n for group in SHOWN for n in names(group)}))
    options = {
        group: {o.name: {"type": o.kind.__name__, "default": o.default} for o in options_of(factory).values()}
        for group, factory in found.items()
    }
    if as_json:
        return json.dumps(options) + "\n"
    lines = []
    for group, factory in found.items():
        doc = " ".join((factory.__doc__ or "").split())
        lines.append(f"{group.removesuffix('s')} {name}: {doc}")
        lines += [f"  {key:20} {o['type']:6} default {o['default']}" for key, o in options[group].items()]
    return "\n".join(lines) + "\n"


def _source_facts(module: str) -> tuple[list[str], str]:
    """``MODES`` and the first line of the docstring, from the head of the source without running it."""
    spec = importlib.util.find_spec(module)
    if spec is None or spec.origin is None:
        return [], ""
    text = Path(spec.origin).read_text(encoding="utf-8")
    head = re.split(r"^(?:def|class|async|@)", text, maxsplit=1, flags=re.M)[0]
    try:
        tree = ast.parse(head)
    except SyntaxError:  # the head of a file may end inside something
        tree = ast.parse(text)
    modes: list[str] = []
    for node in tree.body:
        if isinstance(node, ast.Assign) and any(isinstance(t, ast.Name) and t.id == "MODES" for t in node.targets):
            modes = list(ast.literal_eval(node.value))
    return modes, (ast.get_docstring(tree) or "").split("\n")[0]


def _packages(extra: str) -> list[str]:
    try:
        required = importlib.metadata.requires(DISTRIBUTION) or []
    except importlib.metadata.PackageNotFoundError:
        return []
    wanted = re.compile(rf"""extra\s*==\s*['"]{re.escape(extra)}['"]""")
    return [re.split(r"[\s\[<>=!~;]", text, maxsplit=1)[0] for text in required if wanted.search(text)]


def _installed(package: str) -> bool:
    try:
        importlib.metadata.distribution(package)
    except importlib.metadata.PackageNotFoundError:
        return False
    return True
