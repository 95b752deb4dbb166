"""The driver of this repository: a chip that distinguishes loud samples from quiet ones."""

import time

import numpy as np

import rig

WORK_S, IDLE_W, BUSY_W = 0.02, 2e-3, 7e-3


def open_device(*, threshold: float = 0.5) -> rig.Device:
    """Open the chip. Its watts are for the simulated meter, as long as there is no real meter."""

    def classify(sample: rig.Sample) -> dict[str, str]:
        time.sleep(WORK_S)
        return {"label": "loud" if float(np.std(sample.payload)) > threshold else "quiet"}

    return rig.blocking(classify, rig.DeviceInfo("my-chip", mode="hardware"), power={"core": (IDLE_W, BUSY_W)})
