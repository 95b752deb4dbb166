"""Intel Loihi 2 as a QUBO solver: Lava in its own interpreter, behind the Device protocol.

``drivers/workers/lava_qubo.py`` does the work, ``drivers/links/remote.py`` talks to it. One driver, two backends of
Lava: the board, and Lava's CPU backend, which runs a network in Python processes at about a thousand steps a second.
"""

from __future__ import annotations

import json
from functools import partial
from typing import Any

from drivers.devices.loihi2.lava_setup import SetupFinding, chosen, inspected
from drivers.links.remote import open_remote
from drivers.links.remote_start import Worker, shipped
from rig.bench.option_checks import one_of, positive
from rig.errors import DataError, RigError, refused
from rig.solving.device import checked_options, kept_budget
from rig.types import Device, Sample
from scenarios.workloads.qubo_mis.graph import from_payload

NAME = "loihi2"
NEURON_MODELS = {True: ("nebm",), False: ("nebm-sa-refract", "sa")}
"""Neuron models of lava-optimization 0.5 by ``simulate``; the first is the default."""
_SOURCES = ("lava_counting", "lava_network", "lava_qubo")


def open_device(
    *,
    simulate: bool = False,
    interpreter: str = "",
    host: str = "",
    neuron_model: str = "",
    temperature: int = 1,
    refract: int | None = None,
    hyperparameters: str = "",
    partition: str = "",
    board: str = "",
    address: str = "",
    loihi_gen: str = "",
    seed: int = 0,
    default_s: float = 1.0,
    longest_s: float = 1000.0,
    start_s: float = 60.0,
    load_s: float = 180.0,
) -> Device:
    """Open Lava's QUBO solver. Solve k of this device draws from a seed that is made of ``seed`` and k.

    ``interpreter`` is the Python 3.10 that has Lava: by default RIG_LAVA_PYTHON, that of ~/.cache/neurorig/lava, or a
    pyenv 3.10 that has it; on another ``host`` (as ssh takes it) "python3". ``neuron_model`` is "nebm" if simulated,
    and "nebm-sa-refract" or "sa" on the chip. For nebm, ``temperature`` is Lava's (in quarters of a cost). After each
    flip a neuron then rests for a number of steps drawn from 0 to ``refract`` (None: the larger of 3 and a twelfth of
    the graph's mean degree). ``hyperparameters`` is a JSON object that Lava gets unchanged, instead of these.
    ``partition`` and ``board`` are SLURM's; ``address`` is that of a board on the network, without SLURM. ``loihi_gen``
    is the generation of its chips, N3B3 or N3C1 (by default LOIHI_GEN, else N3B3). ``default_s`` is the budget of a
    solve without one, ``longest_s`` the longest accepted budget. The interpreter may take ``start_s`` to start, and
    ``load_s`` to build and compile.

    Raises ``UsageError`` for options out of range, ``MissingExtraError`` without execnet or without Lava,
    ``SetupError`` without an interpreter, or without a board unless ``simulate``.
    """
    checked_options(seed, default_s, longest_s)
    positive(start_s=start_s, load_s=load_s)
    one_of(("", "N3B3", "N3C1"), loihi_gen=loihi_gen)
    model = _model(neuron_model, simulate)
    given = _hyperparameters(hyperparameters, temperature, refract, model)
    options = {
        "simulate": simulate,
        "neuron_model": model,
        "hyperparameters": given,
        "refract": refract,
        "partition": partition,
        "board": board,
        "address": address,
        "loihi_gen": loihi_gen,
        "seed": seed,
        "longest_s": longest_s,
    }
    python = (interpreter or "python3") if host else chosen(interpreter).path
    worker = Worker(NAME, [shipped(module) for module in _SOURCES], python, host, options, start_s)
    keep = partial(kept_budget, default_s=default_s, longest_s=longest_s)
    return open_remote(worker, keep=keep, check=_check, load_s=load_s)


def doctor(*, interpreter: str = "") -> list[SetupFinding]:
    """Look for what this device needs.

    The last two findings are about the simulator and the board. A host without lava-loihi can be used with
    ``--simulate``.
    """
    findings = inspected(interpreter)
    if not findings[-1].ok:
        return findings
    for simulate in (True, False):
        what = "simulator" if simulate else "Loihi 2 board"
        try:
            device = open_device(simulate=simulate, interpreter=interpreter)
        except RigError as error:
            # a host without Intel's extension has no board, but nothing is broken
            no_host = not simulate and error.field == "lava-loihi"
            text = f"{what}: this host cannot drive a board, but --simulate works ({error.message})"
            findings.append(SetupFinding(no_host, text if no_host else f"{what}: {error.message}", error.remedy))
            continue
        versions = ", ".join(f"{name} {version}" for name, version in device.info().versions.items())
        device.close()
        findings.append(SetupFinding(True, f"{what}: the worker answers ({versions})"))
    return findings


def _model(name: str, simulate: bool) -> str:
    known = NEURON_MODELS[simulate]
    if name and name not in known:
        how = "simulated" if simulate else "on the chip"
        raise refused("neuron_model", name, f"Lava runs {' or '.join(known)} {how}")
    return name or known[0]


def _hyperparameters(text: str, temperature: int, refract: int | None, model: str) -> dict[str, Any]:
    """Return what Lava gets by name. Raises ``UsageError`` for text that is not a JSON object of plain values."""
    if not 0 <= temperature < 2**16:
        raise refused("temperature", temperature, "Give a whole number, 0 or more")
    if refract is not None and not 0 <= refract < 2**7:
        raise refused("refract", refract, "Give a whole number of steps from 0 to 127")
    try:
        given = json.loads(text) if text else {}
    except ValueError as error:
        raise refused("hyperparameters", text, f'Give a JSON object, such as {{"temperature": 2}} ({error})') from error
    if not isinstance(given, dict) or not all(isinstance(v, (int, float, str)) for v in given.values()):
        raise refused("hyperparameters", text, "Give a JSON object of numbers and texts")
    return {"temperature": temperature, **given} if model == "nebm" else given


def _check(sample: Sample) -> None:
    if from_payload(sample.payload).nodes < 2:
        what = f"sample {sample.id} is a graph of one node, which Lava does not accept"
        raise DataError(what, field="nodes", value=1, remedy="Use graphs of two nodes or more")
