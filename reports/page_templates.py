"""Load the templates of pages, in which an undefined name is an error."""

from __future__ import annotations

import base64
import hashlib
import html
import re
from functools import cache
from typing import TYPE_CHECKING

from rig.terminal import clean

if TYPE_CHECKING:
    from jinja2 import Environment


@cache
def templates() -> Environment:
    """Return the environment of all templates. Only templates of HTML escape their input."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    env = Environment(
        loader=PackageLoader("reports", "templates"),
        autoescape=lambda name: name is not None and name.endswith(".html.j2"),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    env.filters["md"] = _markdown
    env.filters["code"] = lambda text: "`" + clean(text).replace("`", "'") + "`"
    env.filters["tight"] = lambda text: re.sub(r"(?<=\d) (?=[^\s\d(+])", "\u00a0", str(text))
    return env


def hash_of(script: str) -> str:
    """Return the hash by which a page's Content-Security-Policy allows this script."""
    return base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()


def _markdown(text: object) -> str:
    """Escape text so that Markdown shows it unchanged: no markup, no table cell, no HTML."""
    plain = html.escape(clean(text).strip(), quote=False)
    return re.sub(r"([\\`*\[\]|#]|(?<!\w)_|_(?!\w))", r"\\\1", plain)
