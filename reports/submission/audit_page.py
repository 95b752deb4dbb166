"""The audit as a self-contained page, as text on a terminal, and as JSON."""

import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from reports.audit.audit import Audit
from reports.audit.folder.hashes import UNLISTED
from reports.audit.folder.reading import clean, held
from reports.audit.subject import BROKEN_OFF, UNENDED_REMEDY
from reports.page_templates import templates

FORMAT = 1
WORST = (2, 3, 22, 32, 30, 24, 13, 15, 25, 31)
"""Checks whose failure is named first: alterations, then claims that differ from the recording. All others follow."""
REMEDIES = {2: "Ask for the original", 3: "Compare with what was published", 22: "Import it again", 31: "Fill them in"}
OF_FAULTS = {UNLISTED: "Remove it", BROKEN_OFF: UNENDED_REMEDY}
"""Remedies for the worst check, if all of its faults end with these words."""
SOUND = "no check failed"
MEND = "Mend it and submit again, or ask its author"


def document(audits: Sequence[Audit]) -> str:
    """Return the content of ``audit.json``."""
    found = {"schema": f"neurorig-audit/{FORMAT}", "not_seen": not_seen(), "audits": [to_json(one) for one in audits]}
    return json.dumps(found, indent=1, allow_nan=False, default=str) + "\n"


def not_seen() -> dict[str, str]:
    """Return what no audit can see, by name."""
    return dict(held("not_seen.json"))


def to_json(one: Audit) -> dict[str, Any]:
    """Return one audit as a JSON object."""
    names = ("name", "kind", "root", "anchor", "anchored", "quick", "simulated", "claimed", "remade")
    own = {key: getattr(one, key) for key in names}
    own |= {"ok": not one.failed, "worst": ": ".join(worst(one)), "checks": [asdict(c) for c in one.checks]}
    own["figures"] = [asdict(c) | {"ok": c.ok, "sharp": c.sharp} for c in one.compared]
    rules = [asdict(r) for r in one.rules]
    return own | {"rules": rules, "not_compared": list(one.not_compared), "beside": list(one.beside)}


def worst(one: Audit) -> tuple[str, str]:
    """Return the worst finding in a word, and in a sentence with a remedy."""
    if one.failed:
        order = [*WORST, *range(33)]
        first, *more = sorted(one.failed, key=lambda c: order.index(c.number))
        others = f", and {len(more)} more" if more else ""
        told = first.found.split("; ")
        of_all = (remedy for end, remedy in OF_FAULTS.items() if all(one.endswith(end) for one in told))
        remedy = next(of_all, REMEDIES.get(first.number, MEND))
        return "FAILED", f"{first.name}: {first.found}{others}. {remedy}"
    if broken := [r for r in one.rules if not r.ok]:
        others = f", and {len(broken) - 1} more" if broken[1:] else ""
        return "INVALID", f"by its rules: {broken[0].said}{others}. Measure again so that the rules are kept"
    if one.invalid:
        return "INVALID", f"by its own verdict: {', '.join(one.invalid)}. `rig report` names the rules that it breaks"
    if one.unfit:
        sets = ", ".join(one.unfit)
        what = f"judged by {sets}. Measure again with --rules neurobench-1.0"
        if one.simulated:
            what = "simulated, and no rules take a simulation. Measure hardware by neurobench-1.0"
        return "NEVER SUBMITTABLE", f"{what}; {_derived(one)}"
    anchor = one.anchor if one.anchored else f"{one.anchor}: give --signers FILE or --root HASH"
    return SOUND, f"{_derived(one)}; {anchor}"


def _derived(one: Audit) -> str:
    """Return how many of the claims the audit derived again, and how many of those are out of bounds."""
    out = sum(not c.ok for c in one.compared)
    again = f"{len(one.compared)} of {one.claimed} claims were derived again" + f", {out} out of bounds" * bool(out)
    said = "arithmetic left out" if one.quick else again if one.claimed else "it claims no figure"
    return f"{said}; {one.remade}" if one.remade else said


def html(audits: Sequence[Audit]) -> str:
    """Return the page of the audits. It needs no network and runs no script."""
    told = {"counted": counted, "worst": worst, "sound": SOUND, "beside": beside, "not_seen": not_seen()}
    return templates().get_template("audit.html.j2").render(audits=audits, **told)


def counted(one: Audit) -> str:
    """Return the numbers of checks and figures by outcome."""
    outcomes = [c.outcome for c in one.checks]
    counts = ", ".join(f"{outcomes.count(out)} {out}" for out in ("passed", "warned", "failed", "not applicable"))
    return f"of {len(one.checks)} checks {counts}; {_derived(one)}"


def beside(one: Audit) -> str:
    """Return one sentence on the folder's files that were not read."""
    more = f" and {len(one.beside) - 3} more" if len(one.beside) > 3 else ""
    return f"files not read, and covered by no hash: {', '.join(one.beside[:3])}{more}"


def text(one: Audit) -> list[str]:
    """Return the lines for a terminal: the checks, the broken rules, root and anchor, and the worst finding last."""
    marks = {"passed": "ok", "warned": "WARNED", "failed": "FAILED", "not applicable": "-"}
    rows = [f"{one.kind} {one.name}" + ("  SIMULATED" if one.simulated else "")]
    for c in one.checks:
        rows.append(f"{c.number:3} {marks[c.outcome]:7} {c.name}")
        if c.outcome in ("failed", "warned"):
            rows += [f"            found    {clean(c.found)}", f"            allowed  {c.allowed}"]
        rows += [f"            {clean(c.why, 160)}"] if c.outcome == "not applicable" else []
    broken = [r for r in one.rules if not r.ok]
    rows += [f"    rule    {r.said}" for r in broken[:20]]
    rows += [f"    rule    and {len(broken) - 20} more"] if len(broken) > 20 else []
    rows += [f"root    {one.root or 'none'}", f"anchor  {one.anchor}", f"counted {counted(one)}"]
    rows += [f"beside  {beside(one)}"] if one.beside else []
    rows += [f"unseen  {', '.join(not_seen())}; audit.html and audit.json say what these are"]
    return [*rows, ": ".join(worst(one))]
