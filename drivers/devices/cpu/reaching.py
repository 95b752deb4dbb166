"""Decoders of primate reaching in numpy on this computer: published networks from their weights, or a linear one.

A sample is a recorded session. One call starts from rest and decodes the test part of the session. The measured span
does not include learning.
"""

from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np

from drivers.devices.cpu.decoders import WINDOW, Decoder, Spikes, fitted, read_decoder
from drivers.devices.cpu.numpy_device import Seen, numpy_device
from rig.errors import DataError, refused
from rig.types import Device, Sample, Workload

NAME = "numpy-reaching"
_SESSION = "{session}"


def open_device(workload: Workload, *, networks: str | None = None) -> Device:
    """Open the decoders of the sessions of ``workload``, which is ``primate-reaching``.

    ``networks`` is an ``.npz`` file of a published network; ``{session}`` in its path stands for the name of the
    session. Without it, a linear layer is fitted to the first reaches of each session.

    Raises ``DataError`` for another kind of workload or file, ``UsageError`` for networks that differ in size.
    """
    files = {s.id: Path(networks.replace(_SESSION, s.id)) for s in workload.samples} if networks else {}
    sessions = {s.id: _session(s, workload, files.get(s.id)) for s in workload.samples}
    described = {name: decoder.network() for name, (decoder, _) in sessions.items()}
    first = next(iter(described))
    for name, network in described.items():
        if (network.layers, network.memory) != (described[first].layers, described[first].memory):
            what = f"the networks of {first} and {name} differ in size, and a run has one"
            raise refused("networks", networks, f"Measure one session at a time: --option sessions={first}", what)

    def decode(sample: Sample) -> tuple[Any, Seen]:
        decoder, spikes = sessions[sample.id]
        predictions, seen = decoder.decode(spikes)
        return {"prediction": predictions.tolist()}, seen

    algorithm = {"model": "published network" if files else "linear layer on the counts of the last 50 steps"}
    if not files:
        algorithm["training"] = "regularised least squares on the first reaches of each session, outside the span"
    return numpy_device(
        NAME,
        f"decoder of {sessions[first][1].shape[1]} channels",
        described[first],
        algorithm,
        decode,
        lambda sample: sessions[sample.id][0].synapses(),
        artifacts={f"network of {name}": sha256(file.read_bytes()).hexdigest() for name, file in files.items()},
    )


def _session(sample: Sample, workload: Workload, file: Path | None) -> tuple[Decoder, Spikes]:
    """Return the decoder of a session, and the spikes of its test part."""
    payload, first = sample.payload, workload.details.get("regress_from", {}).get(sample.id)
    if payload.dtype.names != ("spikes", "velocity") or not isinstance(first, int) or first < WINDOW:
        what = f"sample {sample.id} of {workload.name} is no session of primate-reaching"
        raise DataError(what, field="workload", value=workload.name, remedy="Use --workload primate-reaching")
    spikes = np.unpackbits(payload["spikes"], axis=1)
    known = fitted(spikes[:first], payload["velocity"][:first]) if file is None else read_decoder(file, spikes.shape[1])
    return known, spikes[first:]
