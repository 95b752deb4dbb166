"""SpiNNaker through sPyNNaker in its own interpreter. This driver has never run on a board.

``--simulate`` maps the network on sPyNNaker's virtual board, which simulates nothing, and gets the spikes from NEST.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from drivers.devices.pynn.description import NetworkFile, read_network
from drivers.devices.pynn.nest import network_of
from drivers.devices.pynn.nest import opened as opened_on_nest
from drivers.links.remote import RemoteDevice, open_remote
from drivers.links.remote_start import Worker, shipped
from rig.bench.option_checks import positive
from rig.errors import refused
from rig.types import Device, Workload

__all__ = ["network_of", "open_device"]

NAME = "spinnaker"
VARIABLE = "RIG_SPINNAKER_PYTHON"
"""This environment variable is the path of an interpreter that has sPyNNaker."""
SOURCES = ("pynn_network", "pynn_spinnaker")


def open_device(
    workload: Workload | None = None,
    *,
    simulate: bool = False,
    network: str = "",
    board: str = "",
    spalloc: str = "",
    interpreter: str = "",
    nest_interpreter: str = "",
    start_s: float = 300.0,
    load_s: float = 600.0,
) -> Device:
    """Open a network file (``rig ne15 train`` makes one) on a machine: a SpiNN-5 ``board`` by address, or ``spalloc``.

    ``interpreter`` is a Python with sPyNNaker, by default RIG_SPINNAKER_PYTHON; ``nest_interpreter`` is NEST's, which
    simulates the spikes with ``simulate``. They may take ``start_s`` to start, and ``load_s`` to load the samples.

    Raises ``DataError`` for a network that cannot be used or does not fit the ``workload``, ``MissingExtraError``
    without execnet or sPyNNaker, and ``SetupError`` without the interpreter or a named machine, and for a network
    that does not fit 48 chips.
    """
    positive(start_s=start_s, load_s=load_s)
    interpreter = interpreter or os.environ.get(VARIABLE, "")
    if not interpreter:
        remedy = f"Make one: pip install 'sPyNNaker==1!7.4.1'; give its python here, or set {VARIABLE}"
        raise refused("interpreter", interpreter, remedy, "sPyNNaker needs an interpreter of its own")
    read = read_network(Path(network))
    read.check_sources(workload)
    options = {"simulate": simulate, "board": board, "spalloc": spalloc}
    device = _opened(read, options, interpreter, start_s, load_s)
    if not simulate:
        return device
    mapping = device.info()
    device.close()
    about = {
        "name": NAME,
        "mode": "simulator",
        "description": f"spikes and times from NEST, placements from the {mapping.description}",
        "details": {"mapping": mapping.details["mapping"], "mapping_versions": dict(mapping.versions)},
    }
    return opened_on_nest(read, nest_interpreter, start_s, load_s, about)


def _opened(
    network: NetworkFile, machine: dict[str, Any], interpreter: str, start_s: float, load_s: float
) -> RemoteDevice:
    options = {**network.options(), **machine, "about": network.about()}
    worker = Worker(NAME, [shipped(name) for name in SOURCES], interpreter, "", options, start_s, "spinnaker")
    return open_remote(worker, check=network.check, load_s=load_s, network=network.network())
