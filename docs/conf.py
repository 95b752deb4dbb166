"""The documentation site: Sphinx reads the Markdown of this folder and the docstrings of the packages."""

from __future__ import annotations

import importlib.metadata
from typing import Any

from sphinx.application import Sphinx

project = "neurorig"
copyright = "The neurorig authors"  # noqa: A001 (the name that Sphinx reads)
release = importlib.metadata.version("neurorig")

extensions = ["myst_parser", "sphinx.ext.autodoc"]
html_theme = "furo"
html_title = "neurorig"
myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 4
suppress_warnings = ["myst.header"]  # a decision record may begin below a first-level heading

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_preserve_defaults = True
add_module_names = False
toc_object_entries_show_parents = "hide"

PUBLIC_API = "reference/api"
"""The page whose marked place is filled with the names of ``rig.__all__``."""
MARK = "<!-- public names -->"


def public_names(app: Sphinx, docname: str, source: list[str]) -> None:
    """Put one directive for each name of ``rig.__all__`` into the page on the public API."""
    if docname != PUBLIC_API:
        return
    import rig  # noqa: PLC0415

    names = [name for name in getattr(rig, "__all__", ()) if not name.startswith("_")]
    source[0] = source[0].replace(MARK, "\n\n".join(directive(name, getattr(rig, name)) for name in names))


def directive(name: str, value: Any) -> str:
    """Return the MyST block that documents one public name."""
    kind = "autoclass" if isinstance(value, type) else "autofunction" if callable(value) else "autodata"
    members = ":members:\n:undoc-members:\n" if kind == "autoclass" else ""
    return f"```{{eval-rst}}\n.. {kind}:: rig.{name}\n" + "".join(f"   {line}\n" for line in members.split("\n")) + "```"


def setup(app: Sphinx) -> None:
    """Connect the page of public names."""
    app.connect("source-read", public_names)
