"""The network of a Xylo before it was fitted to the chip, in numpy on this computer: a reference for the chip.

It decides from the same events as the chip. Its time and power are those of this computer, not of a Xylo.
"""

import platform
from collections.abc import Mapping
from typing import Any

import numpy as np

from drivers.devices.xylo.device import decision, read_network
from drivers.devices.xylo.networks.complexity import float_inspection_of
from drivers.devices.xylo.networks.encoder import raster_of
from rig.engine.blocking_device import blocking
from rig.errors import SetupError
from rig.network.description import Activity
from rig.types import Device, DeviceInfo, Sample


def open_device(
    *, network: str | None = None, dt_s: float | None = None, reset: str | None = None, classes: str = ""
) -> Device:
    """Open the network of a file (None: the shipped scene network) with its original weights and time constants.

    The options are those of the device ``xylo``. A graph in NIR runs by its equations, with Euler's method and at most
    one spike of a neuron in a time step. A network of ``rig network train`` runs as it was trained.

    Raises ``SetupError`` for a file with only integers, and the errors of reading the file.
    """
    loaded = read_network(network, dt_s, reset, "channel", classes)
    floats = loaded.floats
    if floats is None:
        what = f"{network} holds the integers of the chip and no float weights"
        raise SetupError(what, field="network", value=network, remedy="Train it again with `rig network train`")
    inspection = float_inspection_of(loaded, floats)
    counted: dict[str, Activity] = {}

    def infer(sample: Sample) -> Mapping[str, Any]:
        raster = raster_of(sample, loaded.encoder)
        traces = floats.run(raster.astype(floats.layers[0].threshold.dtype))
        after = [t.before_reset - t.spikes * n.threshold for t, n in zip(traces, floats.layers, strict=True)]
        seen = {"Spikes": [t.spikes for t in traces[:-1]], "Vmem": after[:-1], "Vmem_out": after[-1:]}
        recorded = {name: np.concatenate(values, axis=1) for name, values in seen.items()}
        counted["last"] = inspection.activity(raster, recorded, traces[-1].spikes.astype(np.int64))
        return decision(loaded.classes, traces[-1].spikes.sum(axis=0).tolist())

    info = DeviceInfo(
        name="xylo-float",
        mode="hardware",
        description=f"the network of a Xylo in floating point, in numpy {np.__version__} on this computer",
        versions={"numpy": np.__version__},
        artifacts={"network": loaded.digest_sha256},
        network=inspection.info,
        details={"processor": platform.processor() or platform.machine(), "classes": list(loaded.classes)},
        algorithm={"network": "before it was fitted to the chip", "training": dict(loaded.training)},
    )
    return blocking(infer, info, count=lambda sample: counted["last"])
