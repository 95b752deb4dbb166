"""Is each special case of the analysis useful? Each is switched off on plants (simulated benches) where it acts.

    python -m benchmarks.rent --plants 8 --seed 1 [--kind gated_late ...] [--case "ends of spans" ...]

A special case is a function with one answer that means "does not apply"; it *acts* on a plant if it gives another
answer. Without the case, a figure of the plant may be wrong by over two half-widths, refused, no longer held (its truth
outside its interval), or of another width. A row per case and kind gives the number of changed plants. A case is useful
if, without it, any plant is no longer held, is wrong, is wider, or is stated instead of refused. A few plants of a kind
do not reveal its rare effects.
"""

import importlib
import json
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np

from benchmarks.command_line import parser_of
from benchmarks.kinds import FIGURES, KINDS, judged
from fixtures.worlds.lab_recording import plain_lab, write
from rig.analysis.power.estimators import Margin
from rig.analysis.power.model.rail_model import RailModel
from rig.analysis.timing.meter_faults import RULES, Rule, Screened, screened
from rig.types import Bools, Floats

WIDER = 1.1
"""The width of a plant counts as changed if a half-width changes by more than this factor."""
PAYS = {"held no more", "wrong now", "wider", "stated now"}
"""Changes that count as a loss if a case is switched off."""
Row = dict[str, Any]


@dataclass(frozen=True)
class Case:
    """A special case: the path of its function, and the function that replaces it to switch it off."""

    where: str
    off: Callable[..., Any]


def always(answer: Any) -> Callable[..., Any]:
    """Return a function that gives the same answer for all arguments."""
    return lambda *given, **named: answer


def without(rule: Rule) -> Callable[..., Screened]:
    """Return the function that screens readings, without one of its rules."""
    return partial(screened, rules=[other for other in RULES if other is not rule])


def unclipped(model: RailModel) -> tuple[Floats, Bools]:
    return np.zeros(len(model.above_w)), np.zeros(len(model.above_w), bool)


POWER, MODEL, TIMING = "rig.analysis.power.", "rig.analysis.power.model.", "rig.analysis.timing."
CASES: Mapping[str, Case] = {
    "changes of level": Case(MODEL + "idle_level_changes.shown", lambda columns, _: np.zeros(columns.shape[1], bool)),
    "times at another level": Case(MODEL + "trace_model._with_compound", lambda design, _: design),
    "hum": Case(MODEL + "noise.lines_of", always(())),
    "noise that lasts in idle": Case(MODEL + "trace_model._lasting", lambda state, _: 1e-9 * np.eye(len(state))),
    "heat of the work": Case(MODEL + "trace_model.work_of", always(np.zeros((0, 3)))),
    "steps that spans do not share": Case(MODEL + "idle_level_changes._stays", always(False)),
    "power that swings": Case(POWER + "span_ends_and_idle_doubts.swings", always(False)),
    "what gaps begin with": Case(POWER + "span_ends_and_idle_doubts.gaps_above_w", always(0.0)),
    "what settles after the work": Case(POWER + "span_ends_and_idle_doubts.settles_w", always(0.0)),
    "swings of idle": Case(MODEL + "rail_model._swings", lambda blocks, *_: np.zeros(2 * (len(blocks.state),))),
    "a gain that changes": Case(POWER + "uncertainty_budget.gain_change", always(0.0)),
    "a filter that nobody declared": Case(TIMING + "alignment.placement.undeclared_tau_s", always(None)),
    "fitted": Case(POWER + "estimators.fitted", always(None)),
    "restless idle": Case("rig.analysis.evaluate.restless", always([])),
    "something else at work": Case(TIMING + "outside_spans._beside_more_w", always(0.0)),
    "idle windows that do not rest": Case(POWER + "span_ends_and_idle_doubts.unrested_w", always(0.0)),
    "moved into the gaps": Case(POWER + "figures.moved", always(Margin())),
    "ends of spans": Case(POWER + "figures.ends", always(Margin())),
    "parts that no reading saw": Case(POWER + "figures.unseen", always(Margin())),
    "readings lost at work": Case(POWER + "figures.missing_while_busy", always(0.0)),
    "end of the range": Case(POWER + "figures.beyond_range", always(None)),
    "clipped readings": Case(POWER + "uncertainty_budget.hidden_of", unclipped),
    "apparent step": Case(POWER + "uncertainty_budget.step_of", always(0.0)),
    "step in spans": Case(POWER + "uncertainty_budget.step_in", lambda value, _: (0.0, value[:0])),
    "no dither": Case(POWER + "uncertainty_budget.undithered", always(0.0)),
    "apparent ends of a range": Case(TIMING + "readings.ends_of", always(())),
    "spans at other times": Case(TIMING + "alignment.aligned_rails.astray", always(0)),
    "readings after the end": Case(TIMING + "alignment.placement.after_end", always(())),
} | {
    f"screen,{rule.__name__.replace('_', ' ')}": Case(TIMING + "alignment.aligned_rails.screened", without(rule))
    for rule in RULES
}


def alike(one: Any, other: Any) -> bool:
    """Return whether two answers are the same object, or have equal parts."""
    if one is other:
        return True
    if isinstance(one, tuple | list) and isinstance(other, tuple | list):
        return len(one) == len(other) and all(alike(a, b) for a, b in zip(one, other, strict=True))
    if isinstance(one, Screened) and isinstance(other, Screened):
        said = [(s.notes, s.checks, s.late_ticks, s.bias) for s in (one, other)]
        return said[0] == said[1]
    if isinstance(one, np.ndarray) or isinstance(other, np.ndarray):
        return np.array_equal(one, other)
    return type(one) is type(other) and isinstance(one, float | int | None) and one == other


@contextmanager
def watched(acted: set[str], names: Sequence[str]) -> Iterator[None]:
    """Record which cases give another answer than when they are switched off."""

    def noting(name: str, case: Case, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*given: Any, **named: Any) -> Any:
            answer = real(*given, **named)
            if isinstance(answer, Iterator):
                answer = tuple(answer)
            if name not in acted and not alike(answer, case.off(*given, **named)):
                acted.add(name)
            return answer

        return call

    with ExitStack() as stack:
        for name in names:
            case = CASES[name]
            module, _, attribute = case.where.rpartition(".")
            real = getattr(importlib.import_module(module), attribute)
            stack.enter_context(patch(case.where, noting(name, case, real)))
        yield


def one(task: tuple[str, int, Sequence[str]]) -> dict[str, Row]:
    """Return the result of a plant with all cases (key ""), and with each case that acts in it switched off."""
    kind, seed, names = task
    lab = plain_lab(seed, kind)
    KINDS[kind](lab)
    acted: set[str] = set()
    with tempfile.TemporaryDirectory() as folder:
        path, real = Path(folder) / "run", lab.truth()
        write(lab, path)
        with watched(acted, names):
            rows = {"": judged(path, real)}
        for name in sorted(acted):
            with patch(CASES[name].where, CASES[name].off):
                rows[name] = judged(path, real)
    return rows


def words_of(row: Row) -> tuple[bool, bool, bool]:
    """Return three answers on a plant.

    They are whether all its figures hold, whether one is wrong by over two half-widths, and whether dynamic power is
    missing.
    """
    found = row["figures"].values()
    held = bool(found) and all(abs(f["error"]) <= f["half"] for f in found)
    return held, any(abs(f["error"]) > 2.0 * f["half"] for f in found), FIGURES[0] not in row["figures"]


def changes(before: Row, after: Row) -> Iterator[str]:
    """Yield what a plant loses or gains without a case."""
    (held, silent, refused), (held_now, silent_now, refused_now) = words_of(before), words_of(after)
    yield from (
        word
        for word, changed in (
            ("held no more", held and not held_now),
            ("held now", held_now and not held),
            ("wrong now", silent_now and not silent),
            ("wrong no more", silent and not silent_now),
            ("refused now", refused_now and not refused),
            ("stated now", refused and not refused_now),
        )
        if changed
    )
    shared = before["figures"].keys() & after["figures"].keys()
    by = [after["figures"][n]["half"] / max(before["figures"][n]["half"], 1e-300) for n in shared]
    if by and max(by) > WIDER:
        yield "wider"
    if by and min(by) < 1.0 / WIDER:
        yield "narrower"


def rent(kinds: Sequence[str], names: Sequence[str], plants: int, seed: int, workers: int) -> dict[str, Any]:
    """Print what each case achieves by kind, and return it."""
    began, tasks = time.monotonic(), [(k, seed * 1_000_000 + n, names) for k in kinds for n in range(plants)]
    acts: Counter[str] = Counter()
    earned: dict[str, dict[str, Counter[str]]] = defaultdict(lambda: defaultdict(Counter))
    with ProcessPoolExecutor(workers) as pool:
        for done, ((kind, _, _), rows) in enumerate(zip(tasks, pool.map(one, tasks, chunksize=2), strict=True)):
            for name in rows.keys() - {""}:
                acts[name] += 1
                earned[name][kind].update(changes(rows[""], rows[name]))
            if done % (10 * plants) == 0:
                print(f"{done} of {len(tasks)} plants, {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)
    for name in names:
        print(f"{name}: acts in {acts[name]} of {len(tasks)} plants of {len(earned[name])} kinds")
        for kind, words in sorted(earned[name].items()):
            if words:
                print(f"    {kind:32}" + ", ".join(f"{word} {n}" for word, n in sorted(words.items())))
    none = [name for name in names if not any(w.keys() & PAYS for w in earned[name].values())]
    print(f"cases that no kind needs: {len(none)}" + "".join(f", {name}" for name in none))
    said = {name: {kind: dict(words) for kind, words in of.items() if words} for name, of in earned.items()}
    return {"benchmark": "rent", "plants": plants, "acts": dict(acts), "earned": said, "no rent": none}


def main() -> int:
    parser = parser_of(__doc__, seed=1, workers=2)
    parser.add_argument("--plants", type=int, default=4, help="of each kind")
    parser.add_argument(
        "--kind", metavar="KIND", action="append", choices=sorted(KINDS), help="this kind only; may be repeated"
    )
    parser.add_argument(
        "--case", metavar="CASE", action="append", choices=sorted(CASES), help="this case only; may be repeated"
    )
    args = parser.parse_args()
    found = rent(args.kind or list(KINDS), args.case or list(CASES), args.plants, args.seed, args.workers)
    print(json.dumps(found))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
