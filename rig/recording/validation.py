"""Check tables, samples, replies, spans and clock reads; each error names the value that does not fit.

The engine and the recorder check a value before it is written, and the reader checks a table before it is used. Checks
of a table raise ``StoreError``. Checks of a value raise ``ValueError`` or ``TypeError``, which the caller converts to
an error about the driver or the file.
"""

import json
import operator
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from rig.recording.columns.arrow_layout import has_text
from rig.recording.columns.buffers import array_of, of, sizes_of, valid
from rig.recording.columns.tables import ADDED, SAMPLES
from rig.recording.disk.size_limits import TEXT_CHARACTERS, check_json
from rig.recording.events import LIMIT, malformed
from rig.types import Bracket, Progress, Sample, Span

FUTURE_NS = 1_000_000_000
"""A span on the host's clock may end at most this long (ns) after its answer came."""
NEVER_NULL = {
    "samples": ("id",),
    "replies": ("issue", "sample_id", "warmup"),
    "progress": ("issue", "sample_id", "tick", "cost"),
    "activity": ("issue", "sample_id", "layer", "counter"),
}
FEW = 4096
_FLOAT = float(np.finfo(np.float64).max)
BOUNDS: Mapping[str, tuple[float, float]] = {
    "inferences": (1, 2**31 - 1), "duration_s": (0.0, _FLOAT), "rate_hz": (0.0, _FLOAT), "label_age_s": (0.0, _FLOAT),
    "seed": (-(2**63), 2**63 - 1),
}  # fmt: skip
"""The smallest and the largest value of each column. Other integers are within +-2^62; spans have separate rules."""
SPAN = ("on_tick", "off_tick", "executions")


def fitted_table(table: pa.Table, name: str, schema: pa.Schema) -> pa.Table:
    """Check the columns that a reader needs, and return them cast to their types.

    Raises ``StoreError``.
    """
    for late in ADDED.get(name, ()):
        if late not in table.column_names:
            table = table.append_column(late, pa.nulls(len(table), schema.field(late).type))
    if missing := [c for c in schema.names if c not in table.column_names]:
        raise malformed(name, f"lacks the columns {', '.join(missing)}", missing)
    columns = {}
    for field in schema:
        if _may_grow(table[field.name].type):
            raise malformed(name, f"has a column {field.name} of {table[field.name].type}", field.name)
        try:
            columns[field.name] = _cast(table[field.name], field.type)
        except (pa.ArrowException, KeyError) as error:
            raise malformed(name, f"has a column {field.name} that is not {field.type}: {error}", field.name) from error
        _check_column(name, field.name, columns[field.name])
    if name == "replies":
        _check_replies(columns)
    return pa.table(columns, schema=schema)


def _cast(column: pa.ChunkedArray, type_: pa.DataType) -> pa.ChunkedArray:
    """Cast a column as Arrow does; short columns do without ``pyarrow.compute``, whose import takes longer."""
    if pa.types.is_dictionary(column.type) and column.type.value_type == type_ and len(column) <= FEW:
        return pa.chunked_array([of(column.to_pylist(), type_)])
    return column if column.type == type_ else column.cast(type_)


def _may_grow(type_: pa.DataType) -> bool:
    """Return whether a cast may make a column larger in memory; dictionaries of texts do not count."""
    coded = pa.types.is_dictionary(type_) and not has_text(type_.value_type)
    return coded or pa.types.is_run_end_encoded(type_) or "view" in str(type_)


def _check_column(table: str, name: str, column: pa.ChunkedArray) -> None:
    if name in NEVER_NULL[table] and column.null_count:
        raise malformed(table, f"has a null in the column {name}", name)
    if pa.types.is_string(column.type) and name != "output":
        largest = max((sizes_of(chunk).max(initial=0) for chunk in column.chunks), default=0)
        texts = column.to_pylist() if largest > TEXT_CHARACTERS else ()
        longest = max(map(len, filter(None, texts)), default=0)
        if longest > TEXT_CHARACTERS:
            raise malformed(table, f"has a text of {longest} characters in the column {name}", longest)
    bounded = name in BOUNDS or pa.types.is_integer(column.type)
    if not bounded or len(column) == column.null_count or (table == "replies" and name in SPAN):
        return
    values = array_of(column, 0)[valid(column)]
    low, high = BOUNDS.get(name, (-LIMIT + 1, LIMIT - 1))
    if not (low <= values.min() and values.max() <= high):  # also refuses NaN
        raise malformed(table, f"has a number out of bounds in the column {name}", values.min())


def _check_replies(columns: Mapping[str, pa.ChunkedArray]) -> None:
    on, off, phase = (valid(columns[c]) for c in ("on_tick", "off_tick", "phase"))
    if np.any(on != off) or np.any(on & ~phase):
        raise malformed("replies", "has a span without both ticks and a phase", "on_tick")
    for text in dict.fromkeys(text for text in columns["output"].to_pylist() if text is not None):
        check_json(text.encode(), "an output in replies")
        try:
            json.loads(text)
        except (ValueError, RecursionError) as error:
            raise malformed("replies", f"has an output that is not JSON: {text[:40]!r}", text[:40]) from error


def without_bad_spans(replies: pa.Table) -> tuple[pa.Table, tuple[str, ...]]:
    """Return the replies without the spans that do not fit, and a sentence for each such span.

    The answers of these spans and their host stamps are kept.
    """
    on, off, times = (array_of(replies[c]) for c in SPAN)
    bad = {k: why for k, why in bad_spans(on, off, times) if replies["on_tick"][k].is_valid}
    if not bad:
        return replies, ()
    names = replies["sample_id"]
    for name in ("phase", *SPAN):
        values = replies[name].to_pylist()
        for k in bad:
            values[k] = None
        at = replies.schema.get_field_index(name)
        replies = replies.set_column(at, replies.schema.field(at), [pa.array(values, replies.schema.field(at).type)])
    return replies, tuple(f"the span of sample {names[k].as_py()}, which {why}" for k, why in bad.items())


def bad_spans(
    on: NDArray[Any], off: NDArray[Any], executions: NDArray[Any], before_ns: NDArray[np.int64] | None = None
) -> list[tuple[int, str]]:
    """Return the row and the fault of each span that does not fit, from columns of shape (n,).

    For spans on the host's clock, ``before_ns`` are the host stamps of their answers. An absent value is NaN; it is no
    fault, because comparisons with NaN are false.
    """
    rules = [
        ((on <= -LIMIT) | (on >= LIMIT) | (off <= -LIMIT) | (off >= LIMIT), "has a tick outside +-2^62"),
        (off < on, "ends before it begins"),
        (executions < 1, "stands for less than one execution"),
    ]
    if before_ns is not None:
        rules.append((off > before_ns + FUTURE_NS, "ends more than 1 s after its answer"))
    return [(int(k), why) for bad, why in rules if bad.any() for k in np.flatnonzero(bad)]


# ---- values from drivers and workloads ----------------------------------------------------


def tick_of(value: object) -> int:
    """Return a tick or a time stamp as an integer. Raises ``TypeError`` or ``ValueError``."""
    try:
        tick = operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        raise TypeError(f"{value!r} is not an integer") from None
    if not -LIMIT < tick < LIMIT:
        raise ValueError(f"{tick} is outside +-2^62")
    return tick


def check_text(text: str, name: str) -> None:
    """Raise ``ValueError`` with ``name`` for a text that cannot be stored in a column."""
    if len(text) > TEXT_CHARACTERS:
        raise ValueError(f"{name} has {len(text)} characters, of {TEXT_CHARACTERS} at most")
    text.encode()


def progress_row(progress: object) -> tuple[int, float, bytes]:
    """Return copies of tick, cost and solution. Raises ``TypeError`` or ``ValueError``."""
    if type(progress) is not Progress:
        raise TypeError(f"it holds a {type(progress).__name__}, not a Progress")
    return tick_of(progress.tick), float(progress.cost), bytes(memoryview(progress.solution))


def check_span(span: object) -> Span:
    """Return the span if its ticks are in order. Raises ``TypeError`` or ``ValueError``."""
    if type(span) is not Span:
        raise TypeError(f"it gave a {type(span).__name__}, not a Span")
    if tick_of(span.off_tick) < tick_of(span.on_tick):
        raise ValueError(f"the span from {span.on_tick} to {span.off_tick} ends before it begins")
    return span


def check_bracket(bracket: object, last: Sequence[int] | None) -> tuple[int, int, int]:
    """Return the row of a bracket; ``last`` is its clock's previous row. Raises ``TypeError`` or ``ValueError``."""
    if not isinstance(bracket, Bracket):
        raise TypeError(f"it gave a {type(bracket).__name__}, not a Bracket")
    row = (tick_of(bracket.before_ns), tick_of(bracket.tick), tick_of(bracket.after_ns))
    if row[2] < row[0]:
        raise ValueError(f"the bracket from {row[0]} to {row[2]} ns ends before it begins")
    if last is not None and went_back(last, row):
        raise ValueError(f"the clock went back from {last[1]} to {row[1]}")
    return row


def went_back(last: Sequence[int], row: Sequence[int]) -> bool:
    """Return whether a clock has a lower tick in ``row`` than in the earlier ``last`` (before_ns, tick, after_ns)."""
    return row[0] >= last[2] and row[1] < last[1]


def check_sample(sample: Sample) -> None:
    """Refuse a sample that no reader could use. Raises ``TypeError`` or ``ValueError``, which names the field."""
    if not (isinstance(sample.id, str) and sample.id):
        raise TypeError(f"id is {sample.id!r}, not a text")
    if not isinstance(sample.payload, np.ndarray):
        raise TypeError(f"payload is a {type(sample.payload).__name__}, not an array")
    if not isinstance(sample.target_cost, (int, float, np.number, type(None))):
        raise TypeError(f"target_cost is {sample.target_cost!r}, not a number")
    for name in ("id", "label", "cut_from"):
        if not isinstance(text := getattr(sample, name), str | None):
            raise TypeError(f"{name} is {text!r}, not a text")
        check_text(text or "", name)
    for name, (low, high) in BOUNDS.items():
        value = getattr(sample, name)
        if value is None and name not in ("inferences", "duration_s"):
            continue
        whole = pa.types.is_integer(SAMPLES.field(name).type)
        if not isinstance(value, (int, np.integer) if whole else (int, float, np.number)):
            raise TypeError(f"{name} is {value!r}, not {'an integer' if whole else 'a number'}")
        if not low <= value <= high:
            raise ValueError(f"{name} is {value!r}, not between {low:g} and {high:g}")
