"""Find and inspect the interpreter that Lava needs. Lava runs only in Python 3.10."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from drivers.links.remote_start import probe
from rig.errors import SetupError

VARIABLE = "RIG_LAVA_PYTHON"
"""Environment variable: the path of an interpreter that has Lava."""
PINS = ("lava-nc==0.10.0", "lava-optimization==0.5.0", "networkx==2.8", "numpy==1.26.4", "scipy==1.15.3")
PYTHON = "3.10"
_PACKAGE = "lava-optimization"
_PROBE_S = 20.0


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
