"""Write parts of Python's pre-processing and networks as C: constant arrays, and the header of the tables."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from drivers.devices.arduino import mfe


def mfe_header() -> str:
    """Return the parameters and tables of the pre-processing as a C header."""
    made = mfe.tables()
    reach = [np.flatnonzero(row) for row in made.weights]
    spans = [(int(bins[0]), int(bins[-1]) + 1) for bins in reach]
    packed = np.concatenate([row[a:b] for row, (a, b) in zip(made.weights, spans, strict=True)])
    numbers = {
        "RATE_HZ": mfe.PARAMETERS.rate_hz,
        "SLICE": mfe.PARAMETERS.slice_samples,
        "FRAMES": mfe.FRAMES,
        "FILTERS": mfe.FILTERS,
        "STRIDE": mfe.PARAMETERS.stride_samples,
        "POINTS": mfe.POINTS,
        "EMPHASIS_OVER_50": mfe.PARAMETERS.emphasis_over_50,
        "TURN_BITS": mfe.TURN_BITS,
        "POWER_SHIFT": mfe.POWER_SHIFT,
        "LOG_BITS": mfe.LOG_BITS,
        "LOG_STEPS_BITS": mfe.LOG_STEPS_BITS,
        "CODE_BITS": mfe.CODE_BITS,
        "CODE_PER_LOG2": made.code_per_log2,
        "CODE_OFFSET": f"INT64_C({made.code_offset})",
    }
    lines = ["/* Generated from drivers/devices/arduino/mfe.py. */", "#include <stdint.h>"]
    lines += [f"#define MFE_{name} {value}" for name, value in numbers.items()]
    lines += [
        array("int32_t", "MFE_COSINE", made.cosine),
        array("int32_t", "MFE_SINE", made.sine),
        array("uint8_t", "MFE_FIRST_BIN", np.array([a for a, _ in spans])),
        array("uint8_t", "MFE_END_BIN", np.array([b for _, b in spans])),
        array("uint16_t", "MFE_WEIGHTS", packed),
        array("int32_t", "MFE_LOG2", made.log2),
    ]
    return "\n".join(lines) + "\n"


def array(kind: str, name: str, values: NDArray[np.integer]) -> str:
    """Return a constant array in C."""
    flat = values.ravel().tolist()
    rows = [",".join(map(str, flat[at : at + 24])) for at in range(0, len(flat), 24)]
    return f"static const {kind} {name}[{len(flat)}] = {{\n" + ",\n".join(rows) + "};"
