"""Intel Loihi 2 as a QUBO solver: Lava in its own interpreter, behind the Device protocol.

``drivers/workers/lava_qubo.py`` runs Lava, and ``drivers/links/remote_device.py`` sends it commands. The driver uses
two backends of Lava: the board, and the CPU backend, which runs a network in Python processes at about 1000 steps a
second.
"""

import os
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec

from drivers.links.remote_device import RemoteDevice
from drivers.links.worker_link import Worker, shipped
from rig.bench.settings import Positive, of_settings, within
from rig.errors import DataError, SetupError, refused
from rig.solving.device import checked_options, kept_budget
from rig.types import Device, Sample
from scenarios.workloads.qubo_mis.graph import from_payload

NAME = "loihi2"
NEURON_MODELS = {True: ("nebm",), False: ("nebm-sa-refract", "sa")}
"""Neuron models of lava-optimization 0.5 by ``simulate``; the first is the default."""
_SOURCES = ("common", "lava_counting", "lava_network", "lava_qubo")
VARIABLE = "RIG_LAVA_PYTHON"
"""Environment variable: the path of an interpreter that has Lava."""
PINS = ("lava-nc==0.10.0", "lava-optimization==0.5.0", "networkx==2.8", "numpy==1.26.4", "scipy==1.15.3")


@dataclass(frozen=True)
class Loihi2:
    """The options. See ``open_device``."""

    simulate: bool = False
    interpreter: str = ""
    host: str = ""
    neuron_model: str = ""
    temperature: Annotated[int, partial(within, 0, 2**16 - 1)] = 1
    refract: Annotated[int, partial(within, 0, 127)] | None = None
    hyperparameters: str = ""
    partition: str = ""
    board: str = ""
    address: str = ""
    loihi_gen: Literal["", "N3B3", "N3C1"] = ""
    seed: int = 0
    default_s: float = 1.0
    longest_s: float = 1000.0
    start_s: Positive = 60.0
    load_s: Positive = 180.0


@of_settings
def open_device(settings: Loihi2) -> Device:
    """Open Lava's QUBO solver. The seed of solve number k is made of ``seed`` and k.

    ``interpreter`` is the Python 3.10 with Lava: by default RIG_LAVA_PYTHON, or the one in ~/.cache/neurorig/lava. On
    another ``host`` (a name for ssh) the default is "python3". ``neuron_model`` is "nebm" if simulated, and
    "nebm-sa-refract" or "sa" on the chip. For nebm, ``temperature`` is Lava's parameter, in quarters of a cost. After
    each flip, a nebm neuron rests for its own number of steps, drawn from 0 to ``refract`` (None: the larger of 3 and a
    twelfth of the graph's mean degree). ``hyperparameters`` is a JSON object of parameters for Lava, which replace
    others of the same names. ``partition`` and ``board`` are for SLURM; without SLURM, ``address`` is the network
    address of a board. ``loihi_gen`` is the generation of its chips, N3B3 or N3C1 (by default LOIHI_GEN, else N3B3).
    ``default_s`` is the budget of a solve that has none, and ``longest_s`` is the longest accepted budget. The
    interpreter may take ``start_s`` to start, and ``load_s`` to build and compile.

    Raises ``UsageError`` for options out of range, ``MissingExtraError`` without execnet or without Lava,
    ``SetupError`` without an interpreter, and on hardware without a board.
    """
    s = settings
    checked_options(s.seed, s.default_s, s.longest_s)
    known = NEURON_MODELS[s.simulate]
    model = s.neuron_model or known[0]
    if model not in known:
        how = "simulated" if s.simulate else "on the chip"
        raise refused("neuron_model", model, f"Lava runs {' or '.join(known)} {how}")
    options = {**asdict(s), "neuron_model": model, "hyperparameters": _hyperparameters(s, model)}
    python = (s.interpreter or "python3") if s.host else python_of(s.interpreter)
    worker = Worker(NAME, [shipped(module) for module in _SOURCES], python, s.host, options, s.start_s)
    keep = partial(kept_budget, default_s=s.default_s, longest_s=s.longest_s)
    return RemoteDevice(worker, keep=keep, check=_check, load_s=s.load_s)


def _hyperparameters(s: Loihi2, model: str) -> dict[str, Any]:
    """Return the hyperparameters for Lava, by name.

    Raises ``UsageError`` for text that is not a JSON object of plain values.
    """
    try:
        given = msgspec.json.decode(s.hyperparameters or "{}", type=dict[str, bool | int | float | str])
    except msgspec.MsgspecError as error:
        remedy = f'Give a JSON object of numbers and texts, such as {{"temperature": 2}} ({error})'
        raise refused("hyperparameters", s.hyperparameters, remedy) from error
    return {"temperature": s.temperature, **given} if model == "nebm" else given


def _check(sample: Sample) -> None:
    if from_payload(sample.payload).nodes < 2:
        what = f"sample {sample.id} is a graph of one node, which Lava does not accept"
        raise DataError(what, field="nodes", value=1, remedy="Use graphs of two nodes or more")


def python_of(interpreter: str) -> str:
    """Return the Python with Lava: the named one, that of ``VARIABLE``, or the one in the user's cache.

    Raises ``SetupError`` without any.
    """
    own = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "neurorig" / "lava"
    if named := interpreter or os.environ.get(VARIABLE):
        return named
    if (own / "bin" / "python").is_file():
        return str(own / "bin" / "python")
    made = f"python3.10 -m venv {own} && {own}/bin/pip install {' '.join(PINS)}"
    remedy = f"Make one: {made}; or set {VARIABLE}, or give its path (option interpreter)"
    raise SetupError("Lava needs an interpreter of its own", field="interpreter", value=interpreter, remedy=remedy)
