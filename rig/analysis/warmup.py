"""Find the replies that count, and the issues of warm-up.

Times and power leave warm-up out in ``rig.analysis.timing.counted_spans``.
"""

import pyarrow as pa
import pyarrow.compute as pc

from rig.recording.reader import Run


def counted_replies(run: Run, *columns: str) -> pa.Table:
    """Return these columns of the replies, or all, without the replies of warm-up."""
    return run.replies.select(columns or run.replies.column_names).filter(pc.invert(run.replies["warmup"]))


def warmup_issues(run: Run) -> set[int]:
    """Return the issues (requests) of warm-up."""
    return set(run.replies.filter(run.replies["warmup"])["issue"].to_pylist())
