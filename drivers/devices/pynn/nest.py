"""NEST on this computer, through PyNN in its own interpreter. The measured system is a real computer."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from drivers.devices.pynn.description import NetworkFile, read_network
from drivers.links.remote_device import RemoteDevice
from drivers.links.worker_link import Worker, shipped
from rig.bench.settings import positive
from rig.errors import refused
from rig.network.description import NetworkInfo
from rig.types import Device, Workload


class Backend(NamedTuple):
    """One simulator for PyNN. The environment variable ``variable`` may name an interpreter with the ``packages``.

    ``lacking`` is the error if no interpreter is named.
    """

    name: str
    variable: str
    packages: str
    lacking: str


NEST = Backend(
    "nest", "RIG_NEST_PYTHON", "nest-simulator==3.10.0 PyNN==0.13.0", "NEST and PyNN need an interpreter of their own"
)


def open_device(
    workload: Workload | None = None,
    *,
    network: str = "",
    interpreter: str = "",
    start_s: float = 120.0,
    load_s: float = 120.0,
) -> Device:
    """Open a network file (``rig ne15 train`` makes one) on NEST.

    ``interpreter`` is a Python with nest-simulator and PyNN, by default RIG_NEST_PYTHON. It may take ``start_s`` to
    start and build the network, and ``load_s`` to load the samples. The phase ``load`` sends the spikes to the sources;
    the phase ``inference`` simulates.

    Raises ``DataError`` for a network that cannot be used or does not fit the ``workload``, ``MissingExtraError``
    without execnet, NEST or PyNN, ``UsageError`` if no interpreter is named, and ``SetupError`` if the interpreter
    cannot start.
    """
    read = read_network(Path(network))
    read.check_sources(workload)
    return opened(read, interpreter, start_s, load_s)


def network_of(*, network: str = "") -> NetworkInfo:
    """Return the description of a file's network, without NEST. Raises ``DataError`` as ``open_device`` does."""
    return read_network(Path(network)).network()


def opened(
    network: NetworkFile,
    interpreter: str,
    start_s: float = 120.0,
    load_s: float = 120.0,
    about: Mapping[str, Any] | None = None,
    backend: Backend = NEST,
    **machine: Any,
) -> RemoteDevice:
    """Return the device of a network; ``about`` overrides parts of its description, ``machine`` are worker options.

    Raises what ``open_device`` raises, except for the network file.
    """
    positive(start_s=start_s, load_s=load_s)
    interpreter = interpreter or os.environ.get(backend.variable, "")
    if not interpreter:
        remedy = f"Make one: pip install {backend.packages}; give its python here, or set {backend.variable}"
        raise refused("interpreter", interpreter, remedy, backend.lacking)
    options = {**network.options(), **machine, "about": {**network.about(), **(about or {})}}
    sources = [shipped(name) for name in ("common", "pynn_network", f"pynn_{backend.name}")]
    worker = Worker(backend.name, sources, interpreter, "", options, start_s, backend.name)
    return RemoteDevice(worker, check=network.check, load_s=load_s, network=network.network())
