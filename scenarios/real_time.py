"""Real-time: a stream with changing scenes, cut into frames that do not wait for the device (NeuroBench, ASC)."""

import math
from collections.abc import Iterator

from rig.bench.settings import positive, within
from rig.errors import refused
from rig.types import Issue, Rules, Step, Streams, Workload
from scenarios.idle_and_warmup import LONGEST_S, chosen, framed, idle_and_warmup, once


def real_time(
    workload: Workload,
    rules: Rules,
    purpose: str = "all",
    *,
    window_s: float = 1.0,
    stride_s: float = 0.5,
    scene_s: float = 5.0,
    stream_s: float = 60.0,
    deadline_s: float | None = None,
    queue: int = 4,
    phase: str | None = None,
    stream_seed: int = 1,
    idle_s: float | None = None,
    warmup: int | None = None,
) -> Iterator[Step]:
    """Yield frames of ``window_s``, one every ``stride_s``, from a stream of ``stream_s``.

    The scene of the stream changes every ``scene_s``. A frame is due when it is complete, even if the device is still
    busy. It is dropped if ``queue`` frames wait. Its answer is due within ``deadline_s`` (default: the stride).
    ``phase`` issues only this phase of the device, for a device that runs its other phases by itself. A run for
    accuracy or compliance issues the samples of the set one by one instead, without a stream.
    """
    idle, warm = idle_and_warmup(rules, idle_s, warmup)
    within(1, math.inf, queue=queue)
    positive(window_s=window_s, stride_s=stride_s, scene_s=scene_s, deadline_s=chosen(deadline_s, stride_s))
    within(max(window_s, rules.min_duration_s), LONGEST_S, "s", stream_s=stream_s)
    if purpose == "compliance":
        return framed(once(workload.samples), workload, idle, warm)
    if not isinstance(workload, Streams):
        raise refused("workload", workload.name, "Use asc or ne15-mnist", f"workload {workload.name} is not a stream")
    frames = workload.stream(window_s, stride_s, scene_s, stream_s, stream_seed)
    if purpose == "accuracy":
        return framed(once(workload.samples), workload, idle, warm)
    # frames are cut before the run, because the host's work between two frames would count as the device's latency
    due = enumerate(list(frames))
    work = (Issue((f,), due_ns=round(k * stride_s * 1e9), queue=queue, phase=phase) for k, f in due)
    return framed(work, workload, max(idle, stride_s), warm)  # no mark may come within a stride of the last frame
