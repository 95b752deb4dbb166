"""Checks of the content and the declarations of a folder: files, hashes, signature, device, report, rows."""

import contextlib
import csv
import hashlib
import io
import re
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from reports.audit.benchmarks import DECLARED, OF_BENCHMARK
from reports.audit.evidence import Evidence, NotApplicable, Verdict, asked, doubted, each, rows_of, unlike
from reports.audit.folder.reading import Run, blocks, clean, read_bytes, table, ticks, walk
from reports.audit.power.estimate import power_rails
from reports.audit.rules import modes_of, values_of
from rig.errors import RigError

FILES = ("submission.toml", "results.csv", "report.html", "report.md", "ro-crate-metadata.json", "MANIFEST.sha256")
SECTIONS = ("architecture", "algorithm", "workflow", "timing", "power", "results")
STAMPS_LEAST, VALUES_LEAST = 8, 64
"""Recordings with fewer distinct times or readings than these limits may be equal by chance."""
BLANKS = ("todo", "tbd", "fixme", "lorem ipsum", "placeholder")


def layout(e: Evidence) -> Verdict:
    faults = [text for text in e.subject.faults if not text.startswith("about.")]
    faults += [f"{part.name}: {text}" for part in e.subject.parts for text in part.unread]
    if e.subject.submission is not None:
        held = walk(e.subject.path)
        faults += [f"{name} is missing or empty" for name in FILES if not held.get(name)]
    tables = ("samples", "replies")
    faults += each(e, lambda run: [f"{name}.arrows has no row" for name in tables if not table(run, name).num_rows])
    torn = "has lost its end, and its run was closed"
    faults += each(e, lambda run: [f"{name} {torn}" for name in run.whole.truncated if run.stop is not None])
    return faults, f"{len(e.subject.runs)} runs", "every file of the layout, with content"


def digests_fit(e: Evidence) -> Verdict:
    ledger = e.subject.ledger
    bare = ledger.unsealed if e.subject.submission is None else []  # a manifest replaces seals
    seals = f"no seal of {', '.join(bare)}" if bare else "sealed"
    return [*ledger.faults, *_shared(e)], f"as hashed, {seals}", "as hashed; each run its own recording"


def _shared(e: Evidence) -> Iterator[str]:
    """Yield a fault for runs with the same recording, even if their files differ.

    A repeated simulation makes the same recording except for the date in its log, so only its log is compared.
    """
    seen = dict[str | bytes, str]()
    for name, run in e.subject.runs:
        own: dict[str, str | bytes] = {"events.jsonl": run.whole.digest}
        if modes_of(run) == {"hardware"}:
            own |= {key: hashlib.sha256(found.tobytes()).digest() for key, found in _measured(run) if found.size}
        for key, found in own.items():
            if seen.setdefault(found, name) != name:
                yield f"runs that share a recording: {seen[found]} and {name} hold the same {key}"


def _measured(run: Run) -> Iterator[tuple[str, Any]]:
    """Yield what no other measurement repeats: readings, and times between stamps, or stamps if few times differ."""
    if not run.start.get("imported"):  # stamps of an imported run may come from a plan
        told = (ticks(table(run, "replies"), name) for name in ("issued_ns", "completed_ns"))
        stamps = np.sort(np.concatenate([ns[there] for ns, there in told]))
        between = np.diff(stamps)
        yield "stamps", between if len(np.unique(between)) >= STAMPS_LEAST else stamps
    with contextlib.suppress(RigError):  # an unreadable trace is reported elsewhere
        for name, trace in power_rails(run).items():
            value = next(blocks(trace, 0), np.empty((4, 0)))[2]
            yield f"readings of {clean(name)}", value if len(np.unique(value)) >= VALUES_LEAST else value[:0]


def signature(e: Evidence) -> Verdict:
    if not e.anchor.asked:
        raise NotApplicable(f"{e.anchor.words}; give --signers FILE or --root HASH")
    allowed = "a good signature of an allowed signer, or the published hash"
    return [] if e.anchor.holds else [e.anchor.words], e.anchor.words, allowed


def rule_set(e: Evidence) -> Verdict:
    faults = each(e, lambda run: values_of(run)[1])
    names = {clean((run.start.get("rules") or {}).get("name")) for _, run in e.subject.runs}
    claimed = {one["rules"] for one, _ in e.subject.configurations}
    faults += [f"the submission names the rules {n!r}, its runs do not" for n in sorted(claimed - names) if n]
    for one, parts in e.subject.configurations:
        said = [rule.said for part in parts for rule in part.rules if not rule.ok]
        lacks = [f"it claims no {key}" for key in asked(parts, "reports") or () if not _claimed(key, one["claims"])]
        if one.get("verdict") == "VALID":
            faults += [f"{one['name']} is called VALID, and {why}" for why in (said[:1] + lacks)]
    if names == {"None"}:
        raise NotApplicable("the recording names no set of rules")
    own = {rule.found for rule in e.rules if rule.rule == OF_BENCHMARK and rule.found.endswith(DECLARED)}
    doubted(faults, [f"the auditor does not know the benchmark {name}" for name in sorted(own)])
    return faults, ", ".join(sorted(names)), "a revision that the auditor holds, unchanged"


def _claimed(key: str, claims: Iterable[str]) -> bool:
    """Return whether a figure is claimed. ``{target}`` and similar placeholders match any text."""
    pattern = re.compile(re.sub(r"\\{\w+\\}", ".+", re.escape(key)))
    return any(map(pattern.fullmatch, claims))


def one_device(e: Evidence) -> Verdict:
    faults = unlike(e, "{} devices, as they were declared in the runs", lambda run: run.start["device"])
    faults += unlike(e, "runs of {} configurations", lambda run: str(run.start.get("configuration", "")))
    names = sorted({str(run.start["device"].get("name")) for _, run in e.subject.runs})
    return faults, clean(", ".join(names)), "one device in one state"


def description(e: Evidence) -> Verdict:
    parts = [("the device", run.start["device"]) for _, run in e.subject.runs]
    parts += [("a meter", meter) for _, run in e.subject.runs for meter in run.start["meters"]]
    faults = [f"{what} declares no {k}" for what, part in parts for k in ("name", "description") if not part.get(k)]
    return list(dict.fromkeys(faults)), "declared", "a name and a description of device and meters"


def about(e: Evidence) -> Verdict:
    if e.subject.submission is None:
        raise NotApplicable("only a submission has a submission.toml")
    told = e.subject.submission["about"].items()
    empty = [clean(key) for key, text in told if key != "notes" and not str(text).strip()]
    wrong = [text for text in e.subject.faults if text.startswith("about.") and text[6:].partition(":")[0] not in empty]
    return [f"{', '.join(empty)}: empty"] * bool(empty) + wrong, "told", "every field filled in but notes"


def report(e: Evidence) -> Verdict:
    rows_of(e, "holds a report")
    text = read_bytes(e.subject.path / "report.md", 64 << 20).decode("utf-8", "replace").lower()
    headings = [row.lstrip("# ") for row in text.splitlines() if row.startswith("#")]
    faults = [f"no section about {word}" for word in SECTIONS if not any(word in h for h in headings)]
    words = set(text.replace(":", " ").replace("*", " ").split())
    faults += [f"the report holds {word!r}" for word in BLANKS if word in words]
    return faults, f"{len(SECTIONS)} sections", "architecture, algorithm, workflow, timing, power, results"


def digests(e: Evidence) -> Verdict:
    for name, run in e.subject.runs:
        if not run.start["device"].get("artifacts") and not run.start["device"].get("versions"):
            raise NotApplicable(f"the device of {name} declares no artifact and no version")
    return [], "declared in every run", "a version or digest of what the device runs"


def software(e: Evidence) -> Verdict:
    told = [(name, run.start.get("environment") or {}) for name, run in e.subject.runs]
    local = sorted({f"{path} ({digest})" for _, one in told for path, digest in (one.get("local_code") or {}).items()})
    doubts = [f"local code took part: {file}" for file in local]
    if any(one.get("dirty") is None for _, one in told):
        doubted([], doubts)
        raise NotApplicable("a run does not say whether its software was changed")
    commits = {str(one.get("commit")) for _, one in told}
    faults = [f"{name}: the source had uncommitted changes" for name, one in told if one["dirty"]]
    doubted(faults, doubts)
    return faults, f"commit {', '.join(sorted(commits))}", "a clean commit"


def classes(e: Evidence) -> Verdict:
    faults = []
    for one, parts in rows_of(e, "has classes"):
        runs = [run for part in parts for run in part.runs]
        modes = set[str]().union(*map(modes_of, runs))
        own = "measured" if modes == {"hardware"} else "simulated"
        if one["class"] not in ({"imported"} if any(run.start.get("imported") for run in runs) else {own, "estimated"}):
            faults.append(f"{one['name']} is called {one['class']}, and its runs are {', '.join(sorted(modes))}")
    return faults, "each by its own class", "measured only where device and meters are hardware"


def originals(e: Evidence) -> Verdict:
    runs = [(name, run) for name, run in e.subject.runs if run.start.get("imported")]
    if e.quick or e.again is None or not runs:
        raise NotApplicable("left out by --quick" if runs else "no run was imported")
    faults, doubts = list[str](), list[str]()
    for name, run in runs:
        try:
            faults += [f"{name}: {text}" for text in e.again(run)]
        except (RigError, OSError) as error:
            doubts.append(f"{name} is not compared with its originals: {error}")
    doubted(faults, doubts)
    return faults, f"{len(runs)} imported again, and equal", "stamps, readings, windows and descriptions as imported"


def leaderboard_rows(e: Evidence) -> Verdict:
    wanted = [one for one, _ in rows_of(e, "has rows")]
    text = read_bytes(e.subject.path / "results.csv").decode("utf-8", "replace")
    try:
        head, *rows = list(csv.reader(io.StringIO(text), strict=True)) or [[]]
    except csv.Error as error:
        return [f"results.csv is no table that can be read: {error}"], "", "a table"
    faults = [f"the column {key!r} is there twice" for key in sorted(set(head)) if head.count(key) > 1]
    named = [dict(zip(head, row, strict=False)).get("name") for row in rows]
    if named != [_text(one["name"]) for one in wanted] or any(len(row) != len(head) for row in rows):
        faults.append("the rows are not the configurations, in order, each with a cell for every column")
    cells = [(one, *cell) for one, row in zip(wanted, rows, strict=False) for cell in zip(head, row, strict=False)]
    for one, key, shown in cells:
        if (expected := _cell(one, key)) is None and key == "runs":
            continue
        if shown != _text(expected):
            said = "submission.json has no such figure" if expected is None else f"not {_text(expected)}"
            faults.append(f"{one['name']}: {key} is {shown}, {said}")
    return faults, f"{len(cells)} cells", "equal to submission.json, digit for digit"


def _text(value: Any) -> str:
    """Return a value as a cell: empty for None, and with an apostrophe if a spreadsheet would run it as a formula."""
    text = "" if value is None else repr(value) if isinstance(value, float) else str(value)
    return f"'{text}" if isinstance(value, str) and text.startswith(("=", "+", "-", "@")) else text


def _cell(one: dict[str, Any], key: str) -> Any:
    name, _, end = key.rpartition(".")
    name, part = (name, end) if end in ("low", "high") else (key, "value")
    held = one | {"trials": len(one.get("sessions", []))}
    return one.get("claims", {}).get(name, {}).get(part) if name in one.get("claims", {}) else held.get(key)
