"""The power that the simulated Xylo draws, in watts by rail. The total is published; the split over rails is assumed.

This project measured none of these values.
"""

from typing import Any

SOURCE = (
    "published Xylo Audio 2 acoustic scene figures (arXiv 2410.23776): active 692 uW, "
    "57.6 uJ per inference of which 28.4 uJ dynamic; idle = active * (1 - 28.4 / 57.6)"
)
ASSUMPTION = (
    "the split over rails, and all that the analog front end adds while pre-processing, "
    "are assumptions: the publication gives totals of the inference only"
)

ACTIVE_W = 692e-6
DYNAMIC_W = ACTIVE_W * 28.4 / 57.6
_IDLE_SHARE = {"io": 0.18, "afe_core": 0.10, "afe_ldo": 0.02, "snn_core": 0.70}
_INFERENCE_SHARE = {"io": 0.15, "snn_core": 0.85}
_FRONT_END_W = {"afe_core": 36e-6, "afe_ldo": 4e-6}

IDLE_W = {rail: share * (ACTIVE_W - DYNAMIC_W) for rail, share in _IDLE_SHARE.items()}
PHASE_W = {
    "preprocess": {rail: idle + _FRONT_END_W.get(rail, 0.0) for rail, idle in IDLE_W.items()},
    "inference": {rail: idle + DYNAMIC_W * _INFERENCE_SHARE.get(rail, 0.0) for rail, idle in IDLE_W.items()},
}

FRONT_END_RAILS = tuple(_FRONT_END_W)
"""The rails that supply only the analog front end."""
LIVE_IDLE_W = PHASE_W["preprocess"]
"""Idle power while the front end listens all the time."""
LIVE_PHASE_W = {
    phase: {rail: watts + _FRONT_END_W.get(rail, 0.0) for rail, watts in PHASE_W["inference"].items()}
    for phase in ("inference", "learning")
}


def profile() -> dict[str, Any]:
    """Return the profile as JSON values, with its source and what in it is assumed."""
    return {"idle_w": IDLE_W, "phase_w": PHASE_W, "source": SOURCE, "assumption": ASSUMPTION}
