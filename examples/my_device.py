"""A device in one file: a function that takes a sample and returns the answer.

    rig measure --device examples/my_device.py:open_device --meter none

The device is this computer. It classifies the acoustic scene by three thresholds on a spectrum. Replace ``classify`` by
the call that runs your chip. ``fft_size`` is an option: --option fft_size=4096.
"""

import numpy as np

from rig import blocking
from rig.types import Device, DeviceInfo, Sample


def open_device(*, fft_size: int = 1024) -> Device:
    """Open a device that classifies scenes by the power in three bands; ``fft_size`` is the length of one spectrum."""
    window = np.hanning(fft_size)

    def classify(sample: Sample) -> dict[str, str]:
        """Return the answer once it is ready. This call is timed."""
        audio = sample.payload[: len(sample.payload) // fft_size * fft_size].reshape(-1, fft_size)
        power = np.sum(np.abs(np.fft.rfft(audio * window)) ** 2, axis=0)
        freq_hz = np.fft.rfftfreq(fft_size, 1.0 / (sample.rate_hz or 1.0))
        bands = ((200, 500), (500, 1000), (4000, 8000))
        low, middle, high = (power[(freq_hz >= a) & (freq_hz < b)].sum() / power.sum() for a, b in bands)
        if high > 0.03:
            return {"label": "park"}
        if middle > 0.15:
            return {"label": "airport"}
        return {"label": "bus" if low > 0.22 else "street_traffic"}

    info = DeviceInfo(name="my-device", mode="hardware", description="numpy on this computer", timeout_s=5.0)
    return blocking(classify, info)
