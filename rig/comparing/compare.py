"""Compare results: differences with intervals, in which errors of a shared calibration cancel."""

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from msgspec import Struct, field
from msgspec.structs import replace

from rig.analysis.result.figure_catalogue import entry_of
from rig.analysis.result.proportion import independent, paired_difference, proportion
from rig.analysis.result.quantity import CALIBRATION, Component, FigureKey, Figures, Quantity, linear, owned
from rig.analysis.result.result import Result
from rig.analysis.scores.accuracy import right_of
from rig.analysis.scores.answers import data_of
from rig.analysis.sessions.rate_probes import DRAWN, PEAK, SEED
from rig.analysis.sessions.speed import Executions, by_sample, executions_of, paired
from rig.analysis.sessions.summary import SCATTER, together
from rig.comparing.declared_differences import differing
from rig.errors import UsageError, refused
from rig.recording.layout import EVENTS
from rig.recording.records import MeterRecord
from rig.recording.session_json import is_session
from rig.recording.submission import is_submission, open_submission
from rig.session.report import Evaluated, evaluated
from rig.types import Floats

TOLERANCE = 0.05
"""The share by which a repetition may be worse than a submission (NeuroBench/system_benchmarks, rules.md)."""
JUDGED = (
    "accuracy", "throughput_samples_hz", "throughput_inferences_hz", "stream_accuracy", "in_time_share",
    "execution_time_s", "latency_mean_s", "onset_latency_mean_s", "idle_power_w", "active_power_w", "dynamic_power_w",
    "average_power_w", "runtime_power_w", "energy_per_inference_j", "average_energy_per_sample_j",
)  # fmt: skip
"""Figures that the rules judge."""
OF_EXECUTIONS = re.compile(
    "execution_time_s|execution_time_single_s|learning_.*|real_time_factor|synaptic_operations_per_j|"
    "(dynamic_)?energy_per_(inference|inference_integrated|effective_operation|spike|synaptic_operation)_j"
)
"""Figures proportional to the mean time of the executions, or to its inverse."""
OF_DYNAMIC = re.compile("dynamic_|learning_dynamic_|energy_per_synaptic_operation_j|synaptic_operations_per_j")
"""Figures proportional to dynamic power, or to its inverse."""
POWERS = ("active_power_w", "dynamic_power_w", "runtime_power_w")
"""Figures proportional to the mean power of the executions."""
NOISE = ("white noise", "noise under load")
"""Sources of uncertainty that make measured powers of executions scatter although the true powers do not."""
METERS, RAILS = "mode of the meters", "rails in the totals"
"""Beginnings of entries of ``Comparison.unlike`` that concern power."""
_OF_A_RUN = ("busy level:", "idle level:", "resolution, ", "change:", "1/f:", "speed")
"""Beginnings of origins of errors that more samples do not reduce.

These errors are limits of one run or level, or slower than a run.
"""
ACCURACY = FigureKey("accuracy")

Right = Mapping[tuple[str, str, str], bool]
"""By the digest of the data set, the sample's id and the name of its data: whether the answer was right."""


class Subject(Struct, frozen=True):
    """One side of a comparison: its path, the name of its configuration, and its result."""

    path: Path
    name: str
    result: Result
    submitted: bool
    digests: frozenset[str]
    """Digests of its runs."""
    instruments: Mapping[str, str]
    """By rail or gain: the instrument and its calibration, if both are stated."""
    right: Right = field(default_factory=dict)
    """The samples behind the accuracy, each with whether its answer was right."""
    executions: tuple[Mapping[tuple[str, str], Executions], ...] = ()
    """The executions behind the times and, if other runs measured power, those behind the powers.

    Each is by phase and rail; an empty name means all. A single phase or rail has no entry of its own.
    """


class Difference(Struct, frozen=True):
    """One figure of two subjects; ``low`` to ``high`` is the interval of ``second - first``, if one is stated."""

    key: FigureKey
    first: Quantity
    second: Quantity
    value: float
    low: float | None
    high: float | None
    cancelled: bool
    """Whether errors of a shared calibration have cancelled."""
    kept: bool | None
    """Whether the second is at most 5 % worse; None for a figure outside ``JUDGED`` and for results not submitted."""
    paired: tuple[int, int] | None = None
    """For accuracy on the same samples: how many only the first answered rightly, and how many only the second."""

    @property
    def shown(self) -> bool | None:
        """Return whether the interval of the difference excludes zero; None without an interval."""
        return None if self.low is None or self.high is None else not self.low <= 0.0 <= self.high

    @property
    def said(self) -> str:
        """Return whether the second is better or worse, if the interval excludes zero."""
        if self.shown is None:
            return "no interval stated"
        if not self.shown:
            return "no difference shown"
        if not (better := entry_of(self.key).better):
            return "differs"
        return "better" if (self.value > 0.0) == (better == "more") else "worse"

    @property
    def relative(self) -> float | None:
        """Return the difference divided by the magnitude of the first; None if the first is zero."""
        return self.value / abs(self.first.value) if self.first.value else None

    def to_json(self) -> dict[str, Any]:
        found = {"first": self.first.value, "second": self.second.value, "unit": self.first.unit}
        found |= {"difference": self.value, "low": self.low, "high": self.high, "relative": self.relative}
        found |= {"shown": self.shown, "said": self.said, "calibration_cancelled": self.cancelled, "kept": self.kept}
        return found if self.paired is None else {**found, "right_in_one_only": list(self.paired)}


class Comparison(Struct, frozen=True):
    """Two subjects, the difference of each figure that both state, and the figures that only one of them states."""

    first: Subject
    second: Subject
    instruments: frozenset[str]
    """The rails or gains that both measured with one instrument and calibration."""
    differences: tuple[Difference, ...]
    alone: tuple[FigureKey, ...]
    unlike: tuple[str, ...]
    """Why the second does not repeat the first: each declaration that differs, and recordings that both have."""

    @property
    def differs(self) -> dict[str, tuple[Any, Any]]:
        """Return the declared differences between the two, by their place in the start line."""
        return differing(self.first.result.start, self.second.result.start)

    def to_json(self) -> dict[str, Any]:
        sides = self.first, self.second
        return {
            "first": str(self.first.path), "second": str(self.second.path),
            "configuration": [self.first.name, self.second.name], "unlike": list(self.unlike), "differs": self.differs,
            "verdict": [side.result.verdict for side in sides], "simulated": [side.result.simulated for side in sides],
            "figures": {str(d.key): d.to_json() for d in self.differences}, "alone": [str(key) for key in self.alone],
        }  # fmt: skip


def compare(paths: Sequence[Path]) -> list[Comparison]:
    """Compare runs, sessions or submissions with the first of them; each is verified and evaluated.

    Raises ``UsageError`` for fewer than two paths, without a common configuration, and for different workloads or
    units; and what ``rig.report`` raises.
    """
    if len(paths) < 2:
        raise UsageError("there is nothing to compare", field="path", remedy="Name two or more: rig compare A B")
    codes: dict[tuple[str, str], int] = {}
    first, *others = [list(subjects(path, codes)) for path in paths]
    pairs = [(a, b) for other in others for a, b in _pairs(first, other)]
    for a, b in pairs:
        _check_alike(a, b)
    return [compared(a, b) for a, b in pairs]


def _check_alike(first: Subject, second: Subject) -> None:
    """Raise ``UsageError`` for results of two workloads, and for a figure that they state in two units."""
    a, b = first.result, second.result
    said = {"workload": (a.start.workload.name, b.start.workload.name)}
    said |= {f"unit of {k}": (q.unit, b.quantities[k].unit) for k, q in a.quantities.items() if k in b.quantities}
    if unlike := next((f"{what}: {x} and {y}" for what, (x, y) in said.items() if x != y), None):
        what = f"{first.path} and {second.path} cannot be compared: {unlike}"
        raise refused("path", str(second.path), "Compare recordings of one workload", what)


def subjects(path: Path, codes: dict[tuple[str, str], int]) -> Iterator[Subject]:
    """Yield the subjects of a path: a run, a session, a folder of these as folds, or a submission's configurations.

    ``codes`` has a number for each phase of each sample; new ones are added.
    """
    if not is_submission(path):
        folds = [] if _recorded(path) or not path.is_dir() else sorted(filter(_recorded, path.iterdir()))
        each = [evaluated(fold) for fold in folds or [path]]
        subject = _subject(path, each[0].result.run_id, each[0].result, each, codes)
        yield _over_folds(subject, each) if folds else subject
        return
    for row in open_submission(path).document.configurations:
        sessions = [(name, evaluated(path / name)) for name in row.sessions]
        whole = together(row.name, [(Path(name).name, found.parts, found.result) for name, found in sessions])
        yield _subject(path, row.name, whole, [found for _, found in sessions], codes, submitted=True)


def _recorded(path: Path) -> bool:
    return is_session(path) or (path / EVENTS).is_file()


def _over_folds(subject: Subject, folds: Sequence[Evaluated]) -> Subject:
    """Return a subject with one accuracy over all folds, and with what the networks of all folds have in common.

    Raises ``UsageError`` for runs of several devices, for runs with a common sample, and for runs without labels.
    """
    asked = [{data for _, _, data in _right(fold)} for fold in folds]
    shared = sum(map(len, asked)) - len(set[str]().union(*asked))
    devices = sorted({f"{d.name} ({d.mode})" for d in (fold.result.start.device for fold in folds)})
    wrong = f"they are of {len(devices)} devices: {', '.join(devices)}" if len(devices) > 1 else ""
    wrong = f"{shared} of their {sum(map(len, asked))} samples are in more than one run" if shared else wrong
    if wrong or not subject.right:
        what = f"the runs in {subject.path} are no folds: {wrong or 'they have no answers to samples with labels'}"
        raise refused("path", str(subject.path), "Name one run, or put others into a folder", what)
    own, *others = (fold.result.quantities for fold in folds)
    alike = {k: q for k, q in own.items() if entry_of(k).family == "complexity" and all(o.get(k) == q for o in others)}
    pooled = proportion(*_counted(subject.right), f"outputs equal to labels, counted over {len(folds)} folds")
    quantities = Figures({ACCURACY: pooled, **alike})
    return replace(subject, name=subject.path.name, result=replace(subject.result, quantities=quantities))


def _right(session: Evaluated) -> Right:
    """Return the answers behind the accuracy of a session: those of its accuracy run, if it has one."""
    parts = [part for part in session.parts if part.purpose == "accuracy"] or session.parts[:1]
    runs = [(part.run, part.run.start.workload.digest_sha256, data_of(part.run)) for part in parts]
    return {(digest, name, data[name]): ok for run, digest, data in runs for name, ok in right_of(run).items()}


def _counted(right: Right) -> tuple[float, float]:
    return independent(list(right.values()), [data for _, _, data in right])


def _pairs(first: Sequence[Subject], second: Sequence[Subject]) -> list[tuple[Subject, Subject]]:
    """Return pairs of configurations with one name. If each side has only one configuration, names do not matter."""
    if len(first) == len(second) == 1:
        return [(first[0], second[0])]
    by_name = {subject.name: subject for subject in second}
    if pairs := [(subject, by_name[subject.name]) for subject in first if subject.name in by_name]:
        return pairs
    what = f"{first[0].path} and {second[0].path} have no configuration of one name"
    raise refused("path", str(second[0].path), "Compare two sessions of them: SUBMISSION/sessions/NAME", what)


def compared(first: Subject, second: Subject) -> Comparison:
    """Return the difference of each figure that both state."""
    a, b = first.result.quantities, second.result.quantities
    judged = first.submitted and second.submitted
    shared = frozenset(k for k, said in first.instruments.items() if said == second.instruments.get(k))
    alike = [key for key in a if key in b and a[key].unit == b[key].unit]
    one, other = (subject.result.start.scenario.options.get(SEED) for subject in (first, second))
    of_draw = {
        key
        for key in alike
        if one != other
        and (entry_of(key).family == "average" or (key == PEAK and not (a[key].components and b[key].components)))
    }
    found = (_paired(_difference(key, first, second, shared, judged, key in of_draw), first, second) for key in alike)
    alone = tuple(key for key in dict.fromkeys((*a, *b)) if (key in a) != (key in b))
    unlike = list(_unlike(first.result, second.result))
    if first.digests & second.digests:
        unlike.append("recordings: some are in both")
    return Comparison(first, second, shared, tuple(found), alone, tuple(unlike))


def _paired(d: Difference, first: Subject, second: Subject) -> Difference:
    """Replace the interval of a difference in accuracy on the same samples by one from their pairs."""
    a, b = first.right, second.right
    if d.key != ACCURACY or not a or a.keys() != b.keys() or {d.first.n, d.second.n} != {round(n := _counted(a)[1])}:
        return d
    lost, won = (sum(one[key] and not other[key] for key in a) for one, other in ((a, b), (b, a)))
    low, high = paired_difference(lost * n / len(a), won * n / len(a), n)
    return replace(d, low=low, high=high, paired=(lost, won))


def _difference(
    key: FigureKey, first: Subject, second: Subject, shared: frozenset[str], judged: bool, of_draw: bool
) -> Difference:
    """Return the difference of a figure. With ``of_draw``, the two had other random arrivals: no interval is stated."""
    a, b = first.result.quantities[key], second.result.quantities[key]
    value = b.value - a.value
    kept = _kept(key, a.value, b.value) if judged else None
    if of_draw or not (a.stated and b.stated):
        return Difference(key, a, b, value, None, None, False, kept)
    found = apart(key, first, second, shared)
    if not found.stated:
        return Difference(key, a, b, value, None, None, False, kept)
    names = {c.shared for c in a.components if c.shared} & {c.shared for c in b.components if c.shared}
    low, high = found.interval()
    return Difference(key, a, b, value, low, high, any(_instrument(name) in shared for name in names), kept)


def apart(key: FigureKey, first: Subject, second: Subject, shared: frozenset[str], factor: float = 1.0) -> Quantity:
    """Return a figure of the second minus ``factor`` times that of the first.

    Errors of ``shared`` instruments stay correlated. For times, powers and energies, the scatter between the executions
    of the same samples in the two runs is added to the uncertainty. If nothing shows the scatter of executions, a time
    or energy has no uncertainty.
    """
    a, b = first.result.quantities[key], second.result.quantities[key]
    if a.limits is not None or b.limits is not None:
        # Newcombe's hybrid interval (Statistics in Medicine 17, 873, 1998, method 10)
        a, value = a.scaled(factor, a.unit), b.value - factor * a.value
        (a_low, a_high), (b_low, b_high) = a.interval(), b.interval()
        low = value - math.hypot(b.value - b_low, a_high - a.value)
        high = value + math.hypot(b_high - b.value, a.value - a_low)
        return Quantity(value, a.unit, n=max(a.n, b.n), limits=(low, high))

    def common(origin: str) -> bool:
        """Return whether the two share an origin, so that its errors cancel: a calibration, or random arrivals."""
        return origin.startswith(DRAWN) or _instrument(origin) in shared

    found = linear([(-factor, owned(a, "first", common)), (1.0, owned(b, "second", common))], a.unit, "difference")
    scatter = _scatter(key, first, second, factor)
    if scatter is None:
        # one execution does not show how executions scatter; trials do
        known = all(any(c.source == SCATTER for c in q.components) for q in (a, b))
        return found if known else replace(found, components=(), bias=0.0)
    return replace(found, components=(*found.components, *scatter))


def _scatter(key: FigureKey, first: Subject, second: Subject, factor: float) -> list[Component] | None:
    """Return how far a difference scatters because executions do; None if nothing shows how a time scatters.

    If the runs share executions, the ratios of these count, and otherwise the samples of each run. Noise of readings
    makes powers of executions scatter too, and is known already, so only the excess over it counts.
    """
    sides = first, second
    growth = [_growth(key, side.result.quantities) for side in sides]
    if not (growth[0].any() and first.executions and second.executions):
        return []
    powers = [q for side in sides if (q := _beside("active_power_w", key, side.result.quantities)) and q.value]
    noises = [c.u / q.value for q in powers for c in q.components if c.source in NOISE]
    found = list[Component]()
    apart = any(len(side.executions) > 1 for side in sides)
    for at in (0, -1) if apart else (0,):
        one, other = (g[at] if apart else g.sum(axis=0) for g in growth)
        a, b = (_of_scope(side.executions[at], key) for side in sides)
        ratios = [paired(b, a, one)]
        if ratios == [None]:
            ratios = [paired(x, _even(x), g) for x, g in ((by_sample(a), factor * one), (by_sample(b), other))]
        parts = [c for ratio in ratios if ratio is not None for c in ratio.components]
        if len(parts) < len(ratios) and key.quantity not in POWERS:
            return None
        known2, all2 = (one[1] * math.hypot(*noises)) ** 2, sum(c.u**2 for c in parts)
        found += [replace(c, u=c.u * math.sqrt(1.0 - known2 / all2)) for c in parts if all2 > known2]
    return found


def _of_scope(of: Mapping[tuple[str, str], Executions], key: FigureKey) -> Executions:
    """Return the executions of a figure; a phase or rail that is the only one has no entry of its own."""
    phase = key.phase if (key.phase, "") in of else ""
    return of.get((phase, key.rail)) or of[phase, ""]


def _even(of: Executions) -> Executions:
    """Return the executions as if each had the mean values of all."""
    return of[0], np.broadcast_to(of[1].mean(axis=0) if len(of[1]) else 0.0, of[1].shape)


def _beside(quantity: str, key: FigureKey, of: Figures) -> Quantity | None:
    """Return another figure of the phase and rail of ``key``, by its method or else by the rig's own."""
    return of.get(replace(key, quantity=quantity)) or of.get(FigureKey(quantity, key.phase, key.rail))


def _growth(key: FigureKey, of: Figures) -> Floats:
    """Return the change of a figure per relative change of an execution's three values (``Executions``), shape (2, 3).

    The first row is for the runs behind the times, the second for those behind the powers. Average power and energy
    include idle time. With scheduled arrivals, longer executions take some of this time; without a schedule, they add
    to the duration.
    """
    entry, value = entry_of(key), of[key].value

    names = ("active_power_w", "dynamic_power_w", "average_power_w", "idle_power_w")
    active_w, dynamic_w, average_w, idle_w = (0.0 if (q := _beside(n, key, of)) is None else q.value for n in names)
    if entry.family != "average":
        timed = value if OF_EXECUTIONS.fullmatch(key.quantity) else 0.0
        above = active_w / dynamic_w if OF_DYNAMIC.match(key.quantity) and dynamic_w else 1.0
        power = value * above if key.quantity in POWERS or (timed and entry.unit in ("J", "1/J")) else 0.0
        return np.array([[timed, 0.0, 0.0], [-power, power, 0.0]])
    whole = map(FigureKey, ("execution_time_s", "throughput_inferences_hz"))
    busy = min(math.prod(of[k].value if k in of else 0.0 for k in whole), 1.0)
    issue_w = 0.0 if FigureKey("dropped_share") in of else idle_w - (average_w if entry.unit == "W" else 0.0)
    watts = np.array([-idle_w * busy, active_w * busy, issue_w])
    return np.array([np.zeros(3), watts * (value / average_w if average_w else 0.0)])


def of_instrument(origin: str | None) -> bool:
    """Return whether an origin is a calibration or a limit of a run: more samples do not reduce its error."""
    own = (origin or "").removeprefix("first:").removeprefix("second:")
    return own.startswith(CALIBRATION + _OF_A_RUN)


def _instrument(origin: str) -> str:
    """Return the rail or gain of the instrument to which an origin belongs; empty for an origin of the run."""
    return origin.partition(":")[2] if origin.startswith(CALIBRATION) else ""


def _kept(key: FigureKey, first: float, second: float) -> bool | None:
    """Return whether a repetition is at most 5 % worse than a submission (rules.md: "not within 95%", "at most 5%")."""
    if not key.of_whole or key.quantity not in JUDGED:
        return None
    margin = TOLERANCE * abs(first)
    return second >= first - margin if entry_of(key).better == "more" else second <= first + margin


def _unlike(a: Result, b: Result) -> Iterator[str]:
    alike = a.start.scenario.name == b.start.scenario.name
    one, other = (r.start.scenario.options if alike else {} for r in (a, b))
    pairs = {
        "device": (a.start.device.name, b.start.device.name),
        "mode": (a.start.device.mode, b.start.device.mode),
        "scenario": (a.start.scenario.name, b.start.scenario.name),
        **{f"option {name} of the scenario": (one.get(name), other.get(name)) for name in one | other},
        "workload": (a.start.workload.name, b.start.workload.name),
        "data of the workload": (a.start.workload.digest_sha256[:12], b.start.workload.digest_sha256[:12]),
        "rules": tuple(None if r.start.rules is None else r.start.rules.name for r in (a, b)),
    }
    modes = tuple(", ".join(sorted({meter.mode or "not stated" for meter in r.start.meters})) for r in (a, b))
    rails = tuple(", ".join(sorted({key.rail for key in r.quantities if key.rail})) for r in (a, b))
    pairs |= {what: found for what, found in ((METERS, modes), (RAILS, rails)) if all(found)}  # if both have a meter
    yield from (f"{what}: {x} and {y}" for what, (x, y) in pairs.items() if x != y)


def _subject(
    path: Path, name: str, result: Result, sessions: Sequence[Evaluated], codes: dict[tuple[str, str], int],
    submitted: bool = False,
) -> Subject:  # fmt: skip
    runs = [part.run for session in sessions for part in session.parts]
    each = [set(instruments_of(run.start.meters).items()) for run in runs if run.start.meters]
    stated = dict(set.intersection(*each)) if each else {}
    digests = frozenset(run.digest for run in runs)
    answers: dict[tuple[str, str, str], set[bool]] = {}
    for key, ok in (pair for session in sessions for pair in _right(session).items()):
        answers.setdefault(key, set()).add(ok)
    # a sample that only some sessions answered rightly makes no pair
    right = {key: min(oks) for key, oks in answers.items() if len(oks) == 1}
    every = [part for session in sessions for part in session.parts]
    groups = ([part for part in every if part.purpose in (purpose, "")] for purpose in ("performance", "power"))
    executions = []
    for parts in {tuple(part.name for part in group): group for group in groups if group}.values():
        phases, rails = list(parts[0].result.series.executions), [r.rail for r in parts[0].result.series.rails]
        scopes = product(*(("", *(names if len(names) > 1 else ())) for names in (phases, rails)))
        executions.append({scope: executions_of(parts, codes, *scope) for scope in scopes})
    return Subject(path, name, result, submitted, digests, stated, right, tuple(executions))


def instruments_of(meters: Sequence[MeterRecord]) -> dict[str, str]:
    """Return instrument and calibration by rail or gain, if both are stated; for a gain, those of all its rails."""
    found: dict[str, str] = {}
    for meter in (meter for meter in meters if meter.serial_number):  # two instruments of a model err differently
        certificate = "" if meter.calibration is None else f"{meter.calibration.certificate} {meter.calibration.date}"
        for rail in meter.rails:
            if rail.accuracy is not None and rail.accuracy.source:
                name = rail.gain_id or rail.name
                said = repr((meter.name, meter.serial_number, certificate, rail.name, rail.accuracy))
                found[name] = found.get(name, "") + said
    return found
