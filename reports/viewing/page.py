"""Make the parts of a page with a trace: the script, the model as JSON, and a policy that no other script may run."""

from __future__ import annotations

import json
from importlib.resources import files
from typing import Any

from markupsafe import Markup

from reports.page_templates import hash_of, templates


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
    """Return the page that a server sends; ``model`` is that of ``reports.viewing.whole``."""
    given = {"model": model, "json": as_json(model), "script": script(), "simulated": bool(model["mark"])}
    return templates().get_template("view.html.j2").render(**given)
