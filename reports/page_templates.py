"""Load the templates of pages, in which an undefined name is an error, and make the parts of a page with a trace.

These are the script, the model as JSON, and a policy that forbids every other script.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

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


def script() -> Markup:
    """Return the program of the picture, unchanged from its file."""
    return Markup(files("reports.viewing").joinpath("viewer.js").read_text(encoding="utf-8"))


def as_json(model: dict[str, Any]) -> Markup:
    """Return a model as JSON inside a script element; no text in it can end the element."""
    text = json.dumps(model, allow_nan=False, separators=(",", ":"))
    return Markup(text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026"))


def policy(*, scripts: bool, server: bool = False) -> str:
    """Return the Content-Security-Policy of a page: only this script, by its hash, and requests only to its server."""
    own = f"; script-src 'sha256-{hash_of(script())}'" if scripts else ""
    return "default-src 'none'; style-src 'unsafe-inline'" + own + ("; connect-src 'self'" if server else "")


def page_of(model: dict[str, Any]) -> str:
    """Return the page that a server sends; ``model`` is from ``reports.viewing.trace_in_viewer``."""
    given = {"model": model, "json": as_json(model), "script": script(), "simulated": bool(model["mark"])}
    return templates().get_template("view.html.j2").render(**given)
