"""SpiNNaker through sPyNNaker in its own interpreter. This driver has never run on a board.

With ``--simulate``, sPyNNaker maps the network for a virtual board, which simulates nothing, and NEST computes the
spikes.
"""

from pathlib import Path
from typing import Any

from drivers.devices.pynn.description import read_network
from drivers.devices.pynn.nest import Backend, network_of, opened
from rig.types import Device, Workload

__all__ = ["network_of", "open_device"]


SPINNAKER = Backend(
    "spinnaker", "RIG_SPINNAKER_PYTHON", "'sPyNNaker==1!7.4.1'", "sPyNNaker needs an interpreter of its own"
)


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

    ``interpreter`` is a Python with sPyNNaker, by default RIG_SPINNAKER_PYTHON. ``nest_interpreter`` is a Python with
    NEST, which computes the spikes with ``simulate``. Each may take ``start_s`` to start, and ``load_s`` to load the
    samples.

    Raises ``DataError`` for a network that cannot be used or does not fit the ``workload``, ``MissingExtraError``
    without execnet or sPyNNaker, and ``UsageError`` if no interpreter is named. Raises ``SetupError`` if an interpreter
    cannot start, if none of ``simulate``, ``board`` and ``spalloc`` is given, or if a network for ``simulate`` needs
    more than 48 chips.
    """
    read = read_network(Path(network))
    read.check_sources(workload)
    machine: dict[str, Any] = {"simulate": simulate, "board": board, "spalloc": spalloc}
    device = opened(read, interpreter, start_s, load_s, backend=SPINNAKER, **machine)
    if not simulate:
        return device
    mapping = device.info()
    device.close()
    about = {
        "name": SPINNAKER.name,
        "mode": "simulator",
        "description": f"spikes and times from NEST, placements from the {mapping.description}",
        "details": {
            "times_of": "NEST on this computer",
            "mapping": mapping.details["mapping"],
            "mapping_versions": dict(mapping.versions),
        },
    }
    return opened(read, nest_interpreter, start_s, load_s, about)
