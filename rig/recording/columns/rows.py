"""Rows of ``replies.arrows`` that wait to be written, packed into one buffer, in which a number stands for each text.

This code runs between two queries, and a device may answer immediately, so it must be fast. The buffer is allocated in
advance, a row allocates little memory, and a flush is a few copies.
"""

import json
import struct
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rig.errors import DeviceError, StoreError
from rig.recording.columns import packing
from rig.recording.columns.arrow_files import Steps
from rig.recording.columns.arrow_stream import Column
from rig.recording.columns.tables import REPLIES
from rig.recording.disk.size_limits import DEPTH, check_json
from rig.recording.validation import bad_spans, check_text
from rig.types import UNSTAMPED, Reply, Span

ROWS, PART_ROWS = 4096, 512
NULL = UNSTAMPED
NO_COUNT = -(2**31)
MOST_TEXTS = 4096
_ROW = struct.Struct("7li4x" if struct.calcsize("l") == 8 else "7qi4x")  # "l" takes two thirds of the time of "q"
_PACK, _SIZE = _ROW.pack_into, _ROW.size
_COLUMNS = ("issue", "kind", "due_ns", "issued_ns", "completed_ns", "on_tick", "off_tick")
_NULLABLE = ("due_ns", "issued_ns", "completed_ns", "on_tick", "off_tick")

Kind = tuple[str, str | None, str | None, bool]
"""Sample id, phase, output as JSON, and whether it is warm-up: values that many rows share."""
_Split = tuple[list[packing.Texts], NDArray[np.bool_]]
"""Several kinds as columns: texts for id, phase and output, and the warm-up flags."""


class ReplyRows:
    """A buffer of ``ROWS`` rows; ``put`` packs a row, and ``take`` empties the buffer into the columns of a batch."""

    __slots__ = ("_all", "_at", "_buffer", "_count", "_end", "_kinds", "_texts", "encode", "on_host_clock", "refused")

    def __init__(self) -> None:
        self._buffer = bytearray(_SIZE * ROWS)
        self._end = _SIZE * ROWS
        self._at = 0
        self._kinds: dict[Any, int] = {}
        self._texts: dict[Kind, int] = {}
        self._all: _Split | None = None
        self._count = 0
        """Number of texts when the last batch was taken; ``_all`` is made only if none was added since."""
        self.encode: Callable[[Any], str] = json_of
        """Converts a new output to JSON; this may run code of the driver."""
        self.on_host_clock = False
        """Whether ticks are host nanoseconds."""
        self.refused: tuple[str, str] | None = None
        """Id of the sample, and fault, of the first span that ``take`` left out."""

    def __len__(self) -> int:
        return self._at // _SIZE

    @property
    def full(self) -> bool:
        return self._at >= self._end

    def put(
        self, issue: int, reply: Reply, due_ns: int | None, issued_ns: int, completed_ns: int, warmup: bool
    ) -> bool:
        """Add the row of a reply that has one span, and return True if work remains for the caller.

        Work remains if the buffer is now full, or if no row was added because the reply has several spans, no span, or
        a progress record. Raises ``DeviceError`` for a tick that is not an integer of 64 bits or an output that JSON
        cannot represent, and ``TypeError`` for a value that is not a span.
        """
        spans = reply.spans
        if len(spans) != 1 or reply.progress:
            return True
        span = spans[0]
        try:
            kind = self._kinds[reply.sample_id, span.phase, reply.output, warmup]
        except (KeyError, TypeError, AttributeError):
            kind = self._new_kind(reply, span, warmup)
        at = self._at
        try:
            _PACK(
                self._buffer, at, issue, kind, NULL if due_ns is None else due_ns, issued_ns, completed_ns,
                span.on_tick, span.off_tick, span.executions,
            )  # fmt: skip
        except struct.error as error:
            raise _unfit(reply.sample_id, error) from error
        self._at = at = at + _SIZE
        return at >= self._end

    def put_row(
        self, issue: int, kind: Kind, times_ns: tuple[int | None, int | None, int | None], span: Span | None
    ) -> None:
        """Add one row of any reply; ``times_ns`` are the times due, issued and completed."""
        number = self._number(kind, span is not None)
        ticks = (NULL, NULL, NO_COUNT) if span is None else (span.on_tick, span.off_tick, span.executions)
        due, issued, completed = (NULL if t is None else t for t in times_ns)
        try:
            _PACK(self._buffer, self._at, issue, number, due, issued, completed, *ticks)
        except struct.error as error:
            raise _unfit(kind[0], error) from error
        self._at += _SIZE

    def take(self, most: int = ROWS) -> Steps[dict[str, Column]]:
        """Return the oldest rows, at most ``most``, as columns of one batch; texts are dictionary-encoded.

        Each step takes a fraction of a millisecond; rows may be added between steps. A bad span is left out of its row,
        and ``refused`` gets its fault.
        """
        n = min(len(self), most)
        width = len(_COLUMNS)
        table = np.frombuffer(self._buffer, np.int64, n * (width + 1)).reshape(n, width + 1)
        looped = np.ascontiguousarray(np.frombuffer(self._buffer, np.int32)[2 * width :: 2 * width + 2][:n])
        number = {name: np.ascontiguousarray(table[:, k]) for k, name in enumerate(_COLUMNS)}
        yield
        self._leave_out_bad_spans(number, looped)
        yield
        which, (texts, warm) = yield from self._named(number.pop("kind"))
        columns = dict[str, Column]()
        for name, values in number.items():
            yield
            columns[name] = packing.numbers(values, values == NULL if name in _NULLABLE else None)
        columns["executions"] = packing.numbers(looped, looped == NO_COUNT)
        for name, known in zip(("sample_id", "phase", "output"), texts, strict=True):
            yield
            columns[name] = known.column(which)
        columns["warmup"] = packing.booleans(warm[which])
        self._forget(n)
        return {name: columns[name] for name in REPLIES}

    def _forget(self, n: int) -> None:
        """Move the rows after the first ``n`` to the front; if there are many texts, keep only texts of moved rows."""
        left = len(self) - n
        self._buffer[: left * _SIZE] = self._buffer[n * _SIZE : self._at]
        self._at = left * _SIZE
        if len(self._texts) > MOST_TEXTS:
            table = np.frombuffer(self._buffer, np.int64, left * (len(_COLUMNS) + 1)).reshape(left, len(_COLUMNS) + 1)
            kept, table[:, 1] = np.unique(table[:, 1], return_inverse=True)
            known = list(self._texts)
            self._kinds.clear()
            self._texts = {known[k]: number for number, k in enumerate(kept.tolist())}
            self._all = None

    def _leave_out_bad_spans(self, number: dict[str, NDArray[np.int64]], executions: NDArray[np.int32]) -> None:
        on, off = number["on_tick"], number["off_tick"]
        absent = (on == NULL) & (off == NULL)
        on_tick, off_tick = (np.where(absent, 0, ticks) for ticks in (on, off))
        times = np.where(executions == NO_COUNT, 1, executions)
        before_ns = np.where(absent, 0, number["completed_ns"]) if self.on_host_clock else None
        for k, why in bad_spans(on_tick, off_tick, times, before_ns):
            sample_id, _, output, warmup = list(self._texts)[number["kind"][k]]
            self.refused = self.refused or (sample_id, why)
            number["kind"][k] = self._number((sample_id, None, output, warmup), False)
            on[k] = off[k] = NULL
            executions[k] = NO_COUNT

    def _named(self, kinds: NDArray[np.int64]) -> Steps[tuple[NDArray[np.int32], _Split]]:
        """Return the number of each row's kind, and the texts and warm-up flags by this number.

        If no kind is new, all batches share one set of text columns, which is written once. If kinds are new, the
        batch has only its own texts; otherwise the file would grow with the square of their number.
        """
        count = len(self._texts)
        if count == self._count:
            if self._all is None:
                self._all = yield from _split(list(self._texts))
            return kinds.astype(np.int32), self._all
        self._all, self._count = None, count
        used = np.flatnonzero(np.bincount(kinds, minlength=count))
        place = np.zeros(count, np.int32)
        place[used] = np.arange(len(used), dtype=np.int32)
        known = list(self._texts)
        return place[kinds], (yield from _split([known[k] for k in used.tolist()]))

    def _new_kind(self, reply: Reply, span: Span, warmup: bool) -> int:
        if type(span) is not Span:
            raise TypeError(f"a reply's spans hold a {type(span).__name__}, not a Span")
        number = self._number((reply.sample_id, span.phase, self.encode(reply.output), warmup), True)
        if reply.output is None or type(reply.output) is str:
            self._kinds[reply.sample_id, span.phase, reply.output, warmup] = number
        return number

    def _number(self, kind: Kind, phased: bool) -> int:
        sample_id, phase = kind[:2]
        if phased and type(phase) is not str:
            raise _unfit(sample_id, TypeError(f"a span's phase is {phase!r}, not a text"))
        number = self._texts.get(kind)
        if number is None:
            try:
                check_text(sample_id, "its id")
                check_text(phase or "", "its phase")
            except ValueError as error:
                raise _unfit(sample_id, error) from error
            number = self._texts[kind] = len(self._texts)
        return number


def _split(kinds: list[Kind]) -> Steps[_Split]:
    *texts, warm = zip(*kinds, strict=True)
    found = []
    for known in texts:
        yield
        found.append(packing.Texts(known))
    return found, np.array(warm, dtype=bool)


def json_of(output: Any) -> str:
    """Return an output as the JSON text that is recorded.

    Raises ``DeviceError`` for a value that JSON cannot represent, or that readers would refuse.
    """
    try:
        text = _json(output)
        if len(text) > 2 * DEPTH:  # a shorter text is within all limits
            check_json(text.encode(), "it")
    except (TypeError, ValueError, RecursionError, StoreError) as error:
        what = f"the output is not JSON: {error.message if isinstance(error, StoreError) else error}"
        remedy = "Let the device answer with numbers, texts, lists and objects"
        raise DeviceError(what, field="output", value=type(output).__name__, remedy=remedy) from error
    return text


def as_list(value: Any) -> Any:
    """Return an array, or a scalar of an array, as lists and numbers.

    Raises ``TypeError`` for anything else.
    """
    if hasattr(value, "tolist"):
        return value.tolist()
    raise TypeError(f"it holds a {type(value).__name__}")


_json = json.JSONEncoder(default=as_list).encode


def _unfit(sample_id: str, error: Exception) -> DeviceError:
    what = f"the reply to sample {sample_id} cannot be recorded: {error}"
    remedy = "Ticks are integers of 64 bits, executions of 32, and a phase is a text; correct the driver"
    return DeviceError(what, field="replies", value=sample_id, remedy=remedy)
