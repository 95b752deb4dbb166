"""Leave warm-up out: which replies are warm-up, the replies that count, and the issues of warm-up."""

import pyarrow as pa

from rig.recording.columns.buffers import array_of, kept
from rig.recording.reader import Run
from rig.types import Bools


def is_warmup(replies: pa.Table) -> Bools:
    """Return which replies are of warm-up, shape (n,)."""
    return array_of(replies["warmup"])


def counted_replies(run: Run, *columns: str) -> pa.Table:
    """Return these columns of the replies, or all, without the replies of warm-up."""
    return kept(run.replies.select(columns or run.replies.column_names), ~is_warmup(run.replies))


def warmup_issues(run: Run) -> set[int]:
    """Return the issues (requests) of warm-up."""
    return set(array_of(run.replies["issue"])[is_warmup(run.replies)].tolist())
