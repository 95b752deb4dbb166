"""A detector in torch on this computer's CPU: any module that returns boxes, for example for ``event-detection``.

The span includes the module and the choice among its boxes.
"""

import hashlib
from pathlib import Path
from typing import Any

import numpy as np

from rig.bench.settings import within
from rig.engine.blocking_device import blocking
from rig.errors import DataError, refused
from rig.plugins import imported, load
from rig.types import Device, DeviceInfo, Floats, Sample

NAME = "detector"


def open_device(
    *, network: str = "", score: float = 0.05, overlap: float = 0.5, most: int = 500, threads: int = 0
) -> Device:
    """Open ``FILE.py:function``, which returns a module that maps (1, channels, rows, columns) to boxes (n, 6).

    A box is class, score, x, y, w, h in pixels of the input. At most ``most`` boxes with a score above ``score`` are
    kept. If two boxes of a class overlap by more than ``overlap`` (intersection over union), the better one is kept.
    NeuroBench takes 500, 0.05 and 0.5 for them. ``threads`` is the number of CPU threads, by default torch's own.

    Raises ``MissingExtraError`` without torch, ``UsageError`` without a module. An answer that is not boxes ends a run
    with ``DataError``.
    """
    within(0.0, 1.0, score=score, overlap=overlap)
    within(1, 10_000, most=most)
    within(0, 1000, threads=threads)
    torch = imported("torch", "the device detector", "torch", field="device", value=NAME)
    file, dot, _ = network.rpartition(":")
    module = load("network", network)() if dot else None
    if not isinstance(module, torch.nn.Module):
        raise refused("network", network, "Give FILE.py:function, that returns a torch.nn.Module", "there is no module")
    module.eval()
    if threads:
        torch.set_num_threads(threads)

    def detect(sample: Sample) -> Any:
        with torch.inference_mode():
            found = module(torch.from_numpy(np.ascontiguousarray(sample.payload))[None].float())
        boxes = np.asarray(found, float)
        if boxes.ndim != 2 or boxes.shape[1] != 6 or not np.isfinite(boxes).all():
            what = f"{network} returns {boxes.shape} for sample {sample.id}, which is no boxes"
            raise DataError(what, field="output", value=sample.id, remedy="Return finite numbers of shape (n, 6)")
        return {"boxes": chosen(boxes[boxes[:, 1] > score], overlap, most).tolist()}

    parameters = sum(p.numel() for p in module.parameters())
    info = DeviceInfo(
        name=NAME,
        mode="hardware",
        description=f"a detector of {parameters} parameters in torch {torch.__version__} on this computer's CPU",
        versions={"torch": torch.__version__},
        artifacts={"network": hashlib.sha256(Path(file).read_bytes()).hexdigest()},
        algorithm={"model": network.rpartition("/")[2], "parameters": {"score": score, "overlap": overlap}},
        details={"threads": torch.get_num_threads()},
    )
    return blocking(detect, info)


def chosen(boxes: Floats, overlap: float, most: int) -> Floats:
    """Return boxes, best score first, without boxes that overlap too much with a better box of the same class."""
    left, kept = boxes[np.argsort(-boxes[:, 1], kind="stable")], list[Floats]()
    while len(left) and len(kept) < most:
        best, left = left[0], left[1:]
        kept.append(best)
        low = np.maximum(left[:, 2:4], best[2:4])
        high = np.minimum(left[:, 2:4] + left[:, 4:], best[2:4] + best[4:])
        shared = np.prod(np.clip(high - low, 0.0, None), axis=1)
        joined = np.prod(left[:, 4:], axis=1) + np.prod(best[4:]) - shared
        left = left[(shared <= overlap * joined) | (left[:, 0] != best[0])]
    return np.array(kept).reshape(-1, 6)
