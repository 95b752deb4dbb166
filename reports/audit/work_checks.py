"""Checks of what was asked and answered: workload, seeds, durations, latency, accuracy, trials."""

import json
import math
import re
from collections import Counter
from collections.abc import Iterator
from functools import partial

from reports.audit.evidence import Evidence, NotApplicable, Verdict, agreed, asked, broken, doubted, each, kept, unlike
from reports.audit.figures import counted, issues
from reports.audit.folder.reading import Run, by_sample, clean, column, table
from reports.audit.rules import CHANCE, EXPLAINED, OTHERWISE, SAMPLES, SPEED, TRIED, modes_of, to_the_end
from reports.audit.scores import is_solving, redrawn, truth_of

LATENCY = ("latency_", "execution_time", "duration_s", "throughput", "in_time", "dropped")
SIMULATED = re.compile(r"\bSIMULATED\b|\bsimulated (?:plant|bench|device|board|instrument|meter)|\bSIM\d{3,}|xylosim")
"""Words in the descriptions of the rig's simulations that no description of its hardware has."""
LIKE_IT = re.compile(r"(?i)simulat(?!ed ?annealing)\w*")
INFERENCE_S = {"acoustic scene classification": 1.0}
"""The length of one inference, for tasks that define it."""
LATENCY_RULES = ("p90", "p99", "frames answered")


def workload(e: Evidence) -> Verdict:
    def faults_of(run: Run) -> Iterator[str]:
        ids = column(table(run, "samples"), "id")
        if len(set(ids)) != len(ids):
            yield "a sample is listed twice"
        if unknown := set(issues(run).sample) - set(ids):
            yield f"{len(unknown)} issued samples are not recorded"
        yield from _inferences(run)
        streamed = run.start["scenario"].get("name") in ("server", "real-time")
        if streamed or not run.ended or _other_data(run):
            return
        same = Counter(column(table(run, "samples"), "payload_sha256"))
        twice = sum(count - 1 for digest, count in same.items() if digest is not None)
        if twice and (run.start.get("rules") or {}).get("whole_set"):
            yield f"{twice} samples have the payload of another"
        declared = run.start["workload"].get("samples")
        if declared and declared != len(set(ids)):
            yield f"{len(set(ids))} samples, declared {declared}"
        times = Counter(counted(run).sample).values()
        if times and max(times) > min(times):
            yield f"samples were issued {min(times)} to {max(times)} times"

    def data_of(run: Run) -> str | None:
        return None if _other_data(run) else str(run.start["workload"].get("digest_sha256"))

    faults = each(e, faults_of) + unlike(e, "runs of {} data sets", data_of) + broken(e, SAMPLES)
    doubted(faults, each(e, partial(_inferences, known=False)))
    count = sum(table(run, "samples").num_rows for _, run in e.subject.runs)
    return faults, f"{count} samples", "one data set, as declared"


def _inferences(run: Run, known: bool = True) -> Iterator[str]:
    """Yield a fault if samples state inferences that disagree with their lengths or their expected answers.

    Without ``known``, yield a doubt if a sample states several inferences without a length or answers to confirm them.
    """
    if run.start.get("imported"):
        return
    held, lasts = by_sample(run, "inferences"), by_sample(run, "duration_s")
    each = {round(lasts[own] / (n or 1), 9) for own, n in held.items() if lasts[own]}
    each_s = run.options.get("window_s", INFERENCE_S.get(str(run.start["workload"].get("task"))))
    if not known:
        most = max((n or 1 for n in held.values()), default=1)
        if most > 1 and not each_s and "regress" not in run.details:
            yield f"samples state up to {most} inferences, and nothing shows how many a sample holds"
        return
    if each_s and any(abs(own_s - each_s) > 1e-6 * each_s for own_s in each):
        yield f"an inference takes {', '.join(map(str, sorted(each)[:3]))} s of a sample, and not {each_s} s"
    many = sum((n or 1) != 1 for n in held.values()) if is_solving(run) else 0
    field, begin = run.details.get("regress"), run.details.get("regress_from") or {}
    rows = {own: truth_of(run, own, field, begin.get(own)) for own in held} if field else {}
    if many := many + sum(len(wanted) not in (0, held[own] or 1) for own, wanted in rows.items()):
        yield f"{many} samples do not hold one inference for each answer due"


def _other_data(run: Run) -> bool:
    """Return whether a run plays other samples than its session on purpose: longer or repeated sequences."""
    return bool(run.start["scenario"].get("amortise_s")) or run.purpose in ("compliance", "probe")


def tuning_seeds(e: Evidence) -> Verdict:
    def faults_of(run: Run) -> Iterator[str]:
        kinds = {*(run.details.get("seed_kinds") or {}).values(), run.details.get("seed_kind")}
        if (run.start.get("rules") or {}).get("submittable") and "tuning" in kinds:
            yield "tuning seeds in an evaluation"
        told = run.start["device"].get("algorithm") or {}
        tuned = told.get("tuning") if isinstance(told.get("tuning"), dict) else told.get("training")
        used = tuned.get("seeds") if isinstance(tuned, dict) else None
        seeds = set(map(str, column(table(run, "samples"), "seed"))) - {"None"}
        if isinstance(used, list) and (both := seeds & set(map(str, used))):
            yield f"seeds {', '.join(sorted(both)[:5])} were used in tuning"

    found = "no tuning seed, and no seed that the device declares for its tuning"
    return each(e, faults_of), found, "evaluation seeds only"


def seeds(e: Evidence) -> Verdict:
    runs = [] if e.quick else e.subject.runs
    again = [(f"{own}: {sample}", same) for own, run in runs for sample, same in redrawn(run).items()]
    if not again:
        raise NotApplicable("no problem that the auditor can draw again from its seed is stored")
    faults = [f"{where} is not the graph of its seed" for where, same in again if not same]
    return faults, f"{len(again)} graphs drawn again", "edge for edge"


def duration(e: Evidence) -> Verdict:
    return kept(e, "duration")


def queries(e: Evidence) -> Verdict:
    return kept(e, "queries", "runs for")


def latency(e: Evidence) -> Verdict:
    try:
        return agreed(e, broken(e, *LATENCY_RULES), *LATENCY)
    except NotApplicable:
        return kept(e, *LATENCY_RULES)


def clean_end(e: Evidence) -> Verdict:
    def faults_of(run: Run) -> Iterator[str]:
        if run.purpose != "probe":  # a search ends with a probe that fails
            yield from (f"{rule}: {found}" for rule, found, _, ok in to_the_end(run) if not ok)

    faults = each(e, faults_of)
    return faults, "every run to its end", "to the end, each sample answered"


def _unlabelled(run: Run) -> Iterator[str]:
    """Yield a fault if only some samples have a label, because the others do not count in accuracy."""
    label = column(table(run, "samples"), "label")
    if any(label) and not _other_data(run) and (lost := label.count(None)):
        yield f"{lost} of {len(label)} samples have no label"


def accuracy(e: Evidence) -> Verdict:
    faults = broken(e, "solves whose costs") + each(e, _unlabelled)
    return agreed(e, faults, "accuracy", "gap_", "cost_", "smape_", "r2")


def from_system(e: Evidence) -> Verdict:
    sure, like = (each(e, partial(_simulated, words)) for words in (SIMULATED, LIKE_IT))
    faults = sure + broken(e, "device and meters")
    if not faults and not any("hardware" in modes_of(run) for _, run in e.subject.runs):
        raise NotApplicable("nothing here claims to be hardware")
    doubted(faults, like)
    return faults, "hardware", "hardware in every run under rules that ask for it; none calls itself simulated"


def _simulated(words: re.Pattern[str], run: Run) -> Iterator[str]:
    """Yield a fault for claimed hardware that its name, description, serial number or versions call simulated."""
    for part in (run.start["device"], *run.start["meters"]):
        told = json.dumps([part.get(key) for key in ("name", "description", "serial_number", "versions")])
        if part.get("mode") == "hardware" and (found := words.search(told)):
            yield f"{clean(part['name'])} says that it is hardware, and describes itself with the word {found[0]!r}"
    if modes_of(run) == {"hardware"} and "--simulate" in (run.start.get("argv") or ()):
        yield "it was recorded with --simulate, and says that all is hardware"


def trials(e: Evidence) -> Verdict:
    begins = (*TRIED, speed := SPEED.partition("{}")[0])
    faults, tried = broken(e, *begins), sum(r.rule.startswith(begins) for r in e.rules)
    rows = [(one["name"], parts, own) for one, parts in e.subject.configurations for own in one["claims"].items()]
    for name, parts, (key, claim) in rows:
        where, mean = f"{name}: {key}", sum(claim["trials"]) / len(claim["trials"])
        if not abs(claim["value"] - mean) <= 1e-9 * abs(mean):
            faults.append(f"{where} is {claim['value']:.6g}, and the mean of its trials is {mean:.6g}")
        most = asked(parts, "trial_tolerance") if key in TRIED else None
        if most is not None and (far := max(abs(one - mean) for one in claim["trials"])) > most * abs(mean):
            faults.append(f"{where}: a session lies {far:.3g} from the mean {mean:.6g} of the row")
    if not tried and not rows:
        raise NotApplicable("neither trials nor claims")
    doubted(faults, [r.said for r in e.rules if r.rule.startswith(speed) and r.found != EXPLAINED])
    found = f"{tried} rules about the trials of a session; {len(rows)} claims are the means of their sessions"
    return faults, found, "time and power of each trial within the tolerance of the rules; a claim is the mean"


def _repeats(run: Run) -> int:
    """Return how often the scenario lets a span repeat its work: as declared, or to fill a power window."""
    repeat, window_s, each_s = (run.options.get(key) for key in ("repeat", "window_s", "timeout_s"))
    if isinstance(repeat, int):
        return repeat
    filled = run.start["scenario"].get("name") == "optimization" and run.options.get("to_gap") is None
    return math.ceil(window_s / each_s) if filled and window_s and each_s and run.start["meters"] else 1


def cache(e: Evidence) -> Verdict:
    def faults_of(run: Run) -> Iterator[str]:
        most = max((n or 1 for n in column(table(run, "replies"), "executions")), default=1)
        own = (run.start["device"].get("details") or {}).get("iterations")
        if most > (declared := _repeats(run) * (own if isinstance(own, int) else 1)) and not run.start.get("imported"):
            yield f"a span holds {most} executions, but {declared} are declared"

    faults = each(e, faults_of) + broken(e, OTHERWISE)
    for part in e.subject.parts:
        times = {run.purpose: part.plain.get(run.path.name, {}).get("execution_time_s") for run in part.runs}
        plain, again = times.get("performance"), times.get("compliance")
        if plain and again and again.value < 0.9 * plain.value:
            faults.append(f"{part.name}: repeated samples take {again.value / plain.value:.0%} of the time of others")
    doubted(faults, [r.said for r in e.rules if r.rule.startswith(OTHERWISE) and r.found.endswith(CHANCE)])
    allowed = "answers as for accuracy, except for a little noise; no faster on samples that were asked before"
    return faults, "repeats as declared", allowed
