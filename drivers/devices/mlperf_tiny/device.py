"""Any board with the MLPerf Tiny device protocol on a serial port.

    rig measure --device mlperf-tiny --option port=/dev/ttyACM0 --option labels=down,go,left,...

Staging a sample loads it with ``db`` commands, and is not timed. The command ``infer`` runs the model. Its two time
stamps, from the board's own microsecond clock, are the span. A loop of N inferences makes one span of N executions.
In energy mode the board marks begin and end by falling edges of a pin, which the power meter must record.
"""

import hashlib
import sys
from dataclasses import astuple, dataclass
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from numpy.typing import NDArray

from drivers.devices.mlperf_tiny.protocol import BoardClock
from drivers.devices.mlperf_tiny.queries import TICK_HZ, QueryPlan, TinyDevice, introduced
from drivers.failures import released_on_error
from drivers.links.serial_line import DEVICE, open_line
from rig.bench.settings import Positive, of_settings, one_of, within
from rig.errors import DataError, DeviceError, reason, refused
from rig.types import CLOCK_TOLERANCE, ClockInfo, Device, DeviceInfo, Sample

KINDS: dict[str, np.dtype[Any]] = {
    "int8": np.dtype("<i1"), "uint8": np.dtype("<u1"), "int16": np.dtype("<i2"), "float32": np.dtype("<f4"),
}  # fmt: skip
MODES = ("hardware",)

PHASE = "inference"
BAUDS = {"performance": 115200, "energy": 9600}
_BEGINS = {True: "when the first time stamp has been sent", False: "at the first time stamp"}
"""When a span begins, by ``prints_first``."""


@dataclass(frozen=True)
class Model:
    """Converts a sample to the bytes of the model's input, and the model's scores to an answer. See ``open_device``."""

    input_type: Annotated[str, partial(one_of, KINDS)] = "int8"
    input_scale: Positive | None = None
    input_zero_point: int = 0
    labels: str = ""
    threshold: float | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """Return the given labels.

        Raises ``UsageError`` for equal or empty labels, and for a threshold with more or fewer than two labels.
        """
        names = tuple(part.strip() for part in self.labels.split(",")) if self.labels else ()
        if len(set(names)) != len(names) or (names and not all(names)):
            raise refused("labels", self.labels, "Name each once", "two labels are equal, or a label is empty")
        if self.threshold is not None and len(names) not in (0, 2):
            what = f"a threshold separates two labels, but {len(names)} labels are given"
            raise refused("labels", self.labels, "Give two labels, first the one for scores below the threshold", what)
        return names

    def encoded(self, sample: Sample) -> bytes:
        """Return little-endian bytes. With ``input_scale``, values beyond the range of the input are clipped.

        Raises ``DataError`` for values that are not finite and, without ``input_scale``, for values that do not fit.
        """
        payload, dtype = np.asarray(sample.payload), KINDS[self.input_type]
        if payload.dtype.kind not in "biuf" or not payload.size or not np.all(np.isfinite(payload)):
            found = f"it is {payload.dtype} of shape {payload.shape}"
            values = ", with values that are not finite" if payload.dtype.kind in "biuf" and payload.size else ""
            raise _unfit(sample, found + values, "Give finite numbers")
        if dtype.kind == "f":
            if float(np.max(np.abs(payload))) > float(np.finfo(np.float32).max):
                raise _unfit(sample, f"values up to {np.max(np.abs(payload))}", "Give numbers that float32 can hold")
            return payload.astype(dtype).tobytes()
        limits = np.iinfo(self.input_type)
        if self.input_scale is not None:
            steps = np.round(payload.astype(np.float64) / self.input_scale) + self.input_zero_point
            return np.clip(steps, limits.min, limits.max).astype(dtype).tobytes()
        whole: NDArray[Any] = np.round(payload)
        if np.any(whole != payload) or np.any((whole < limits.min) | (whole > limits.max)):
            remedy = "Give the model's input_scale and input_zero_point, or another input_type"
            raise _unfit(sample, f"values from {payload.min()} to {payload.max()}", remedy)
        return whole.astype(dtype).tobytes()

    def answer(self, scores: tuple[float, ...]) -> dict[str, Any]:
        """Return the label with the highest score, the scores, and probabilities if the scores sum to 1.

        A single score is compared with the threshold, if there is one. Raises ``DeviceError`` for another number of
        scores than of labels.
        """
        names = self.names or tuple(str(k) for k in range(max(len(scores), 2 if self.threshold is not None else 0)))
        answer: dict[str, Any] = {"scores": list(scores)}
        if len(scores) == 1:
            if self.threshold is not None:
                answer["label"] = names[int(scores[0] >= self.threshold)]
            return answer
        if len(names) != len(scores):
            what = f"the model gives {len(scores)} scores, but there are {len(names)} labels"
            remedy = "Give one label for each output of the model, in its order"
            raise DeviceError(what, field="labels", value=",".join(names)[:120], remedy=remedy)
        answer["label"] = names[int(np.argmax(scores))]
        total = sum(scores)
        if min(scores) >= 0.0 and abs(total - 1.0) <= max(0.01, 1e-3 * len(scores)):  # printed to three decimals
            answer["probability"] = {name: score / total for name, score in zip(names, scores, strict=True)}
        return answer


def _unfit(sample: Sample, found: str, remedy: str) -> DataError:
    what = f"sample {sample.id} does not fit the board's input: {found}"
    return DataError(what, field="payload", value=sample.id, remedy=remedy)


@dataclass(frozen=True)
class MlperfTiny:
    """The options. See ``open_device``."""

    port: str = ""
    mode: Literal["performance", "energy"] = "performance"
    baud: int | None = None
    name: str = "mlperf-tiny"
    model: Model = Model()
    plan: QueryPlan = QueryPlan()
    boot_s: Positive = 5.0
    timer_bits: Annotated[int, partial(within, 16, 64)] = 32
    clock_tolerance: Positive = CLOCK_TOLERANCE
    dtr: bool = True
    firmware: str | None = None
    network: str = ""
    tuning: str = ""


@of_settings
def open_device(settings: MlperfTiny) -> Device:
    """Open the board on a serial ``port``; pyserial opens the port (extra ``serial``).

    ``mode`` is the build of its firmware: ``performance`` (115200 baud) or ``energy`` (9600 baud). In energy mode, a
    pin that is wired to a logic input of the meter marks the times by falling edges. ``baud`` sets another rate.
    ``name`` is the device's name in a recording. ``input_type`` is int8, uint8, int16 or float32 (little-endian). With
    ``input_scale`` a payload for integers is quantised: round(x / scale) + zero point; without it, this payload must
    already be whole numbers that fit. ``labels`` are the model's outputs in order, separated by commas (default 0, 1,
    ...). With one output, the label is the second of two if the output is at least ``threshold``. ``iterations``
    inferences make one span. Each inference may take ``timeout_s``, and the board may take ``boot_s`` to send its name.
    One command carries ``chunk_bytes`` (at most 38). ``timer_bits`` is the width of the board's microsecond counter,
    and ``clock_tolerance`` limits its relative rate error. With ``prints_first`` a span begins when the line with the
    first time stamp has been sent, because the reference firmware prints before it infers. Without it, a span begins at
    this time stamp, as in MLPerf Tiny. ``dtr=false`` keeps the line DTR low, because raising it resets some boards.
    ``firmware`` names a file whose digest is recorded. ``network`` and ``tuning`` state for the report what the
    firmware runs, and how it was trained and tuned.

    Raises ``UsageError`` for options that do not fit, ``SetupError`` for a port without such a board.
    """
    s, model, plan = settings, settings.model, settings.plan
    on_pin, baud, labels = s.mode == "energy", BAUDS[s.mode] if s.baud is None else s.baud, model.names
    digest = {} if s.firmware is None else {"firmware": digest_of(s.firmware)}
    line = open_line(s.port, baud, DEVICE, dtr=s.dtr)
    with released_on_error(line.close):
        clock = partial(BoardClock, s.timer_bits, s.clock_tolerance)
        board, said = introduced(line, clock, s.boot_s, plan.timeout_s, on_pin)
        maker = said.get("name", "")
        info = DeviceInfo(
            name=s.name,
            mode="simulator" if maker.startswith("SIM") else "hardware",
            description=f"{'SIMULATED ' if maker.startswith('SIM') else ''}{maker}, MLPerf Tiny protocol, model "
            f"{said.get('model', 'not stated')}",
            clock=None if on_pin else ClockInfo(s.name, TICK_HZ, s.clock_tolerance),
            spans_on_pin=on_pin,
            phases=(PHASE,),
            timeout_s=plan.timeout_s * plan.iterations,
            versions={k: v for k, v in said.items() if k != "name"} | {"pyserial": version("pyserial")},
            artifacts=digest,
            algorithm={"model": said.get("model"), "network": s.network, "tuning": s.tuning},
            details={
                "port": s.port,
                "baud": baud,
                "input": dict(zip(("type", "scale", "zero_point"), astuple(model), strict=False)),
                "labels": list(labels),
                "iterations": plan.iterations,
                "prints_first": plan.prints_first,
                "mode": s.mode,
                "span_begins": "at the falling edge of the pin" if on_pin else _BEGINS[plan.prints_first],
            },
        )
        if not (on_pin or plan.prints_first):
            prints = f"a span includes the {line.wire_s(18):.2g} s in which"
            remedy = "For the inference alone, give prints_first=true or more iterations"
            sys.stderr.write(f"{prints} the reference firmware prints its first time stamp. {remedy}\n")
        return TinyDevice(board, info, model, plan)


def digest_of(path: str) -> str:
    """Return the SHA-256 of the file that was flashed. Raises ``UsageError`` if it cannot be read."""
    try:
        return hashlib.sha256(Path(path).read_bytes()).hexdigest()
    except OSError as error:
        what = f"cannot read the firmware {path}: {reason(error)}"
        raise refused("firmware", path, "Name the file that was flashed", what) from error
