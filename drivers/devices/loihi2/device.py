"""Intel Loihi 2 as a QUBO solver: Lava in its own interpreter, behind the Device protocol.

``drivers/workers/lava_qubo.py`` does the work, ``drivers/links/remote.py`` talks to it. One driver, two backends of
Lava: the board, and Lava's CPU backend, which runs a network in Python processes at about a thousand steps a second.
The interpreter that Lava needs, a Python 3.10, is looked for in its usual places.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

from drivers.links.remote import open_remote
from drivers.links.remote_start import Worker, probe, shipped
from rig.bench.option_checks import within
from rig.bench.settings import Positive, of_settings
from rig.errors import DataError, RigError, SetupError, refused
from rig.solving.device import checked_options, kept_budget
from rig.types import Device, Sample
from scenarios.workloads.qubo_mis.graph import from_payload

NAME = "loihi2"
NEURON_MODELS = {True: ("nebm",), False: ("nebm-sa-refract", "sa")}
"""Neuron models of lava-optimization 0.5 by ``simulate``; the first is the default."""
_SOURCES = ("lava_counting", "lava_network", "lava_qubo")
VARIABLE = "RIG_LAVA_PYTHON"
"""Environment variable: the path of an interpreter that has Lava."""
PINS = ("lava-nc==0.10.0", "lava-optimization==0.5.0", "networkx==2.8", "numpy==1.26.4", "scipy==1.15.3")
PYTHON = "3.10"
_PACKAGE = "lava-optimization"
_PROBE_S = 20.0


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
    s = settings
    checked_options(s.seed, s.default_s, s.longest_s)
    model = _model(s.neuron_model, s.simulate)
    options = {**asdict(s), "neuron_model": model, "hyperparameters": _hyperparameters(s, model)}
    python = (s.interpreter or "python3") if s.host else chosen(s.interpreter).path
    worker = Worker(NAME, [shipped(module) for module in _SOURCES], python, s.host, options, s.start_s)
    keep = partial(kept_budget, default_s=s.default_s, longest_s=s.longest_s)
    return open_remote(worker, keep=keep, check=_check, load_s=s.load_s)


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


def _hyperparameters(s: Loihi2, model: str) -> dict[str, Any]:
    """Return what Lava gets by name. Raises ``UsageError`` for text that is not a JSON object of plain values."""
    text = s.hyperparameters
    try:
        given = json.loads(text) if text else {}
    except ValueError as error:
        raise refused("hyperparameters", text, f'Give a JSON object, such as {{"temperature": 2}} ({error})') from error
    if not isinstance(given, dict) or not all(isinstance(v, (int, float, str)) for v in given.values()):
        raise refused("hyperparameters", text, "Give a JSON object of numbers and texts")
    return {"temperature": s.temperature, **given} if model == "nebm" else given


def _check(sample: Sample) -> None:
    if from_payload(sample.payload).nodes < 2:
        what = f"sample {sample.id} is a graph of one node, which Lava does not accept"
        raise DataError(what, field="nodes", value=1, remedy="Use graphs of two nodes or more")


@dataclass(frozen=True, slots=True)
class SetupFinding:
    """One thing that was inspected: whether it is usable, what was found, and the remedy."""

    ok: bool
    what: str
    remedy: str = ""


@dataclass(frozen=True, slots=True)
class Interpreter:
    """A Python that answered. ``lava`` is the version of lava-optimization in it, None for none."""

    path: str
    python: str
    lava: str | None

    @property
    def fits(self) -> bool:
        """Return whether Lava can be installed in this Python."""
        return self.python.startswith(f"{PYTHON}.")


def environment() -> Path:
    """Return the virtual environment that is looked for: ``neurorig/lava`` in the user's cache."""
    cache = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(cache).expanduser() / "neurorig" / "lava"


def recipe() -> str:
    """Return the commands that make this environment."""
    return f"python{PYTHON} -m venv {environment()} && {environment()}/bin/pip install {' '.join(PINS)}"


def candidates(interpreter: str = "") -> Iterator[str]:
    """Return paths to try, likeliest first; only one if it was given, or named in the environment."""
    named = interpreter or os.environ.get(VARIABLE, "")
    if named:
        yield named
        return
    yield str(environment() / "bin" / "python")
    pyenv = Path(os.environ.get("PYENV_ROOT") or "~/.pyenv").expanduser() / "versions"
    yield from (str(path) for path in sorted(pyenv.glob(f"{PYTHON}*/bin/python3"), reverse=True))
    if on_path := shutil.which(f"python{PYTHON}"):
        yield on_path


def found(interpreter: str = "") -> list[Interpreter]:
    """Return the candidates that answer. Raises ``SetupError`` for a named one that does not."""
    named = bool(interpreter or os.environ.get(VARIABLE))
    answering = []
    for path in candidates(interpreter):
        if not named and shutil.which(path) is None:
            continue
        try:
            seen = probe(path, (_PACKAGE,), within_s=_PROBE_S)
        except SetupError:
            if named:
                raise
            continue
        answering.append(Interpreter(path, seen["python"], seen["versions"][_PACKAGE]))
    return answering


def chosen(interpreter: str = "") -> Interpreter:
    """Return the first interpreter with Lava. Raises ``SetupError`` when there is none."""
    answering = found(interpreter)
    for one in answering:
        if one.lava is not None:
            return one
    seen = ", ".join(f"{one.path} (Python {one.python}, no {_PACKAGE})" for one in answering) or "none"
    remedy = f"Make one: {recipe()}; or set {VARIABLE}, or give its path (option interpreter)"
    raise SetupError(f"no interpreter with Lava (found: {seen})", field="interpreter", value=interpreter, remedy=remedy)


def inspected(interpreter: str = "") -> list[SetupFinding]:
    """Inspect the interpreters: whether one has Lava, in the version that this driver was made for."""
    try:
        answering = found(interpreter)
    except SetupError as error:
        return [SetupFinding(False, error.message, error.remedy)]
    findings = [
        SetupFinding(True, f"{one.path}: Python {one.python}, {_PACKAGE} {one.lava or 'absent'}") for one in answering
    ]
    with_lava = [one for one in answering if one.lava is not None]
    if with_lava:
        wanted = dict(pin.split("==") for pin in PINS)[_PACKAGE]
        same = with_lava[0].lava == wanted
        other = "" if same else f"The driver was written for {wanted}: {' '.join(PINS)}"
        return [*findings, SetupFinding(same, f"Lava is taken from {with_lava[0].path}", other)]
    if any(one.fits for one in answering):
        return [*findings, SetupFinding(False, "no interpreter has Lava", f"Make one: {recipe()}")]
    remedy = f"Install Python {PYTHON} (pyenv install {PYTHON}), then: {recipe()}"
    return [*findings, SetupFinding(False, f"no Python {PYTHON}, which Lava needs", remedy)]
