"""Leave warm-up out: which replies are warm-up, the replies that count, and the issues of warm-up."""

import pyarrow as pa
import pyarrow.compute as pc

from rig.recording.reader import Run


def is_warmup(replies: pa.Table) -> pa.ChunkedArray:
    """Return which replies are of warm-up."""
    return replies["warmup"]


def counted_replies(run: Run, *columns: str) -> pa.Table:
    """Return these columns of the replies, or all, without the replies of warm-up."""
    return run.replies.select(columns or run.replies.column_names).filter(pc.invert(is_warmup(run.replies)))


def warmup_issues(run: Run) -> set[int]:
    """Return the issues (requests) of warm-up."""
    return set(run.replies.filter(is_warmup(run.replies))["issue"].to_pylist())
