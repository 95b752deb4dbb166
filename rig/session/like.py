"""Take the task and its options from a recording of others, to repeat it on a bench of one's own."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from rig.bench.request import Request
from rig.errors import UnknownNameError, UsageError, refused
from rig.factories import options_of
from rig.plugins import load, names
from rig.recording.events import Start
from rig.recording.read_events import read_log
from rig.recording.session_json import is_session, runs_in
from rig.recording.submission import is_submission, open_submission
from rig.session.measure import PURPOSES
from rig.terminal import clean

PATHS = ("data", "targets")
"""Options that name a file or folder; a repetition must name its own."""
MOST_CHARACTERS = 1_000
TAKEN = ("scenario", "workload", "rules", "mode", "trials", "amortise_s", "compliance", "configuration")
"""The fields of a request that are taken from the recording, besides options."""


def lines_of(taken: Request, left: Sequence[str]) -> Iterator[str]:
    """Yield lines for the terminal: what is taken and what is not."""
    for name in TAKEN:
        if value := getattr(taken, name):
            yield f"takes   {name} {value}"
    yield from (f"takes   {option}" for option in taken.options)
    yield from (f"leaves  {what}" for what in left)


def like(path: Path, workload: str | None = None) -> tuple[Request, list[str]]:
    """Return the task and options with which to repeat a run, session or submission, and the options not taken.

    ``workload`` replaces the recorded workload. The request names no device, meter, path or code. Raises ``UsageError``
    for a submission of several configurations, an import without ``workload``, and a recording of nothing but probes.
    Raises ``UnknownNameError`` for a scenario, workload or rules that the rig does not have. Other errors are those of
    ``rig.report``.
    """
    path = _only_session(path)
    runs = [(read_log(run).start, purpose) for run, purpose in runs_in(path)]
    asked = [pair for pair in runs if pair[1] != "probe" and (workload or pair[0].imported is None)]
    if not asked:
        what = f"{path} holds no run to repeat, but only an import or the probes of a search"
        remedy = "Name a recording of `rig measure`, or search again with --find-peak or --find-size"
        raise refused("like", str(path), remedy, what)
    start = next((s for s, purpose in asked if purpose == "power"), asked[-1][0])
    task = workload or _known("workloads", start.workload.name)
    scenario = _known("scenarios", start.scenario.name)
    options: list[str] = []
    left = ["device, meters, bench and paths: they are yours"]
    if not start.workload.options:
        left.append("options of the workload: this recording does not hold them; give them with --option")
    for group, name, given in (("scenario", scenario, start.scenario.options), ("workload", task, _drawn_again(start))):
        for key, text in _texts(given):
            why = _why_not(group, name, key, text)
            (left if why else options).append(f"{group}.{key}{f': {why}' if why else f'={text}'}")
    purposes = [purpose for _, purpose in asked]
    session = is_session(path)
    return Request(
        device="", scenario=scenario, workload=task,
        rules=_known("rules", start.rules.name) if start.rules is not None else "quick",
        mode="session" if session else next((m for m, p in PURPOSES.items() if p == start.purpose), "together"),
        trials=max(1, *(purposes.count(p) for p in ("performance", "power"))) if session else None,
        amortise_s=start.scenario.amortise_s, compliance="compliance" in purposes,
        repeats_sha256=next((s.workload.digest_sha256 for s, _ in asked if s.scenario.amortise_s is None), ""),
        configuration=clean(start.configuration)[:MOST_CHARACTERS], options=tuple(options),
    ), left  # fmt: skip


def check_own(options: list[str], taken: Request) -> None:
    """Raise ``UsageError`` for an option on the command line that is already taken from the recording."""
    given = {text.partition("=")[0] for text in taken.options}
    for text in options:
        key = text.partition("=")[0]
        clashes = {key, f"scenario.{key}", f"workload.{key}"} & given
        if clashes:
            remedy = f"Leave it out, or write device.{key} or meter.{key} for an option of your bench"
            raise refused("option", text, remedy, f"{min(clashes)} is taken from the recording")


def _only_session(path: Path) -> Path:
    if not is_submission(path):
        return path
    rows = open_submission(path).document.configurations
    if len(rows) > 1:
        what, remedy = f"{path} has {len(rows)} configurations", f"Name one: {path / rows[0].sessions[0]}, ..."
        raise UsageError(what, field="like", value=str(path), remedy=remedy)
    return path / rows[0].sessions[0]


def _known(group: str, name: str) -> str:
    """Return the name if it is registered, else raise: a name from a recording is never looked up as a file."""
    if name not in names(group):
        unknown = UnknownNameError(group.removesuffix("s"), clean(name)[:100], list(names(group)))
        if group == "workloads":
            unknown.remedy = "Install its package, or give your own file with --workload path.py:function"
        raise unknown
    return name


def _drawn_again(start: Start) -> Mapping[str, Any]:
    """Return the options of the workload; if seeds were drawn at random, the option ``seeds`` lists them."""
    options, seeds = dict(start.workload.options), start.workload.details.get("seeds")
    if options.get("draw") and isinstance(seeds, list):
        options |= {"draw": 0, "seeds": ",".join(map(str, seeds))}
    return options


def _texts(options: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for key, value in options.items():
        if value not in (None, ""):
            yield clean(key)[:100], clean(value)


def _why_not(group: str, name: str, key: str, text: str) -> str:
    """Return why an option is not taken; empty if it is taken."""
    if key not in options_of(load(f"{group}s", name)):
        return "no option here"
    if key in PATHS or "/" in text or "\\" in text or Path(text[:MOST_CHARACTERS]).exists():
        return f"a path; give your own with --option {key}=PATH"
    return "" if len(text) <= MOST_CHARACTERS else "too long"
