"""Write the answers of a stream as a table."""

from __future__ import annotations

import io

import numpy as np

from rig.analysis.result.series import Stream
from rig.analysis.service.change_detection import scenes_at
from rig.terminal import clean


def stream_csv(stream: Stream) -> bytes:
    """Return every answer as a row: its time, the answer, the scene at this time, and the probability of each class.

    ``time_s`` is in seconds since the start of the run. All numbers are rounded to nine decimals.
    """
    import pyarrow as pa
    from pyarrow import csv

    names = {name: clean(name) for name in {*stream.scene, *stream.said}}
    columns = {"time_s": pa.array(np.round(stream.at_s, 9))}
    for column, texts in (("said", stream.said), ("scene", scenes_at(stream, stream.at_s).tolist())):
        columns[column] = pa.array([names[text] for text in texts], pa.string())
    for k, c in enumerate(stream.classes):
        columns[f"probability: {clean(c)}"] = pa.array(np.round(stream.probability[:, k], 9))
    out = io.BytesIO()
    csv.write_csv(pa.table(columns), out, csv.WriteOptions(quoting_style="needed"))
    return out.getvalue()
