"""Sphinx reads the Markdown pages of this folder, the docstrings of the packages and the help of the commands."""

from __future__ import annotations

import importlib.metadata
import inspect
import re
import sys
from pathlib import Path
from typing import Any

from sphinx.application import Sphinx

sys.path.insert(0, str(Path(__file__).parent))
from generated_text import fill_marked_place

project = "neurorig"
release = importlib.metadata.version("neurorig")
extensions = ["myst_parser", "sphinx.ext.autodoc"]
html_theme = "furo"
html_title = "neurorig"
html_show_copyright = False
html_static_path = ["_static"]
html_css_files = ["wide.css"]
highlight_language = "text"
myst_heading_anchors = 4
autodoc_member_order = "bysource"
autodoc_preserve_defaults = True
add_module_names = False
toc_object_entries = False


def setup(app: Sphinx) -> None:
    """Connect the generators of marked places in the pages, and of plain text from docstrings."""
    app.connect("source-read", fill_marked_place)
    app.connect("autodoc-process-docstring", as_plain_text)
    app.connect("autodoc-skip-member", keep_methods)
    app.connect("autodoc-process-signature", no_signature_of_protocols)


def as_plain_text(_app: Sphinx, _what: str, _name: str, _value: Any, _options: Any, lines: list[str]) -> None:
    """Turn a docstring into reST: paragraphs, lists, ``literals``, and unchanged indented blocks."""
    out: list[str] = []
    block = ""
    for number, line in enumerate(lines):
        new = number == 0 or not lines[number - 1].strip()
        if not line.strip():
            out.append("")
        elif line.startswith(" ") and (block == "literal" or (new and block != "list")):
            announced = block == "literal" or "".join(out).endswith("::")
            out += [*(() if announced else ("::", "")), line]
            block = "literal"
        elif line.startswith(" ") and block == "list":
            out.append(f"  {escaped(line.strip())}")
        else:
            kind = "list" if line.startswith(("- ", "* ")) else "text"
            out += [""] if kind != block else []
            out.append(("- " + escaped(line[2:])) if kind == "list" else escaped(line.strip()))
            block = kind
    lines[:] = out


def keep_methods(_app: Sphinx, _what: str, name: str, value: Any, skip: bool, _options: Any) -> bool:
    """Show methods without a docstring, as in protocols; fields without one are in the signature."""
    return skip and (name.startswith("_") or not inspect.isfunction(value))


def no_signature_of_protocols(
    _app: Sphinx, _what: str, _name: str, value: Any, _options: Any, signature: str | None, returned: str | None
) -> tuple[str, None] | tuple[str | None, str | None]:
    """Leave out the signature of a protocol, which nobody calls."""
    return ("", None) if getattr(value, "_is_protocol", False) else (signature, returned)


def escaped(text: str) -> str:
    """Escape what reST would read as markup, except ``literals``."""
    parts = re.split(r"(``.+?``)", text)
    return "".join(part if k % 2 else re.sub(r"([*|`\\]|_\b)", r"\\\1", part) for k, part in enumerate(parts))
