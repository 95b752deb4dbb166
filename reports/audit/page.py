"""The audit as a self-contained page, as text on a terminal, and as JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from reports.audit.audit import Audit
from reports.audit.files import clean

FORMAT = 1


def document(audits: Sequence[Audit]) -> str:
    """The content of ``audit.json``."""
    found = {"schema": f"neurorig-audit/{FORMAT}", "audits": [one.to_json() for one in audits]}
    return json.dumps(found, indent=1, allow_nan=False, default=str) + "\n"


def html(audits: Sequence[Audit]) -> str:
    """The page of the audits. It needs no network and runs no script."""
    from jinja2 import Environment, FileSystemLoader

    shelf = Environment(loader=FileSystemLoader(Path(__file__).parent), autoescape=True, trim_blocks=True)
    return shelf.get_template("page.html.j2").render(audits=audits, counted=counted)


def counted(one: Audit) -> str:
    """How the checks and figures came out, in numbers."""
    counts = ", ".join(f"{one.count(out)} {out}" for out in ("passed", "failed", "not applicable"))
    off = sum(not c.ok for c in one.compared)
    figures = "arithmetic left out" if one.quick else f"{len(one.compared) - off} of {len(one.compared)} figures agree"
    return f"of {len(one.checks)} checks {counts}; {figures}"


def text(one: Audit) -> list[str]:
    """The lines for a terminal: a table of checks, failed figures, and the worst finding last."""
    marks = {"passed": "ok", "failed": "FAILED", "not applicable": "-"}
    rows = [f"{one.kind} {one.name}" + ("  SIMULATED" if one.simulated else "")]
    for c in one.checks:
        rows.append(f"{c.number:3} {marks[c.outcome]:7} {c.name}")
        rows += (
            [f"            found    {clean(c.found)}", f"            allowed  {c.allowed}"]
            if c.outcome == "failed"
            else []
        )
        rows += [f"            {clean(c.why, 160)}"] if c.outcome == "not applicable" else []
    broken = [r for r in one.rules if not r.ok]
    rows += [f"    rule    {r.said}" for r in broken[:20]]
    rows += [f"    rule    and {len(broken) - 20} more"] if len(broken) > 20 else []
    rows += [f"root    {one.root or 'none'}", f"anchor  {one.anchor}", f"counted {counted(one)}"]
    return [*rows, "{:7} {}".format(*one.worst)]
