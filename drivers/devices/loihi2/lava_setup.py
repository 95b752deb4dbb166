"""The interpreter that Lava needs is found, inspected or built. Lava runs in Python 3.10 alone."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from drivers.links.remote_start import probe
from rig.errors import RigError, SetupError

VARIABLE = "RIG_LAVA_PYTHON"
"""Environment variable: the path of an interpreter that has Lava."""
PINS = ("lava-nc==0.10.0", "lava-optimization==0.5.0", "networkx==2.8", "numpy==1.26.4", "scipy==1.15.3")
PYTHON = "3.10"
_PACKAGE = "lava-optimization"
_BUILD_S = 3600.0
_PROBE_S = 20.0

Say = Callable[[str], None]


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
        """Whether Lava can be installed in it."""
        return self.python.startswith(f"{PYTHON}.")


def environment() -> Path:
    """Where ``build`` puts its virtual environment: ``neurorig/lava`` in the user's cache."""
    cache = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(cache).expanduser() / "neurorig" / "lava"


def candidates(interpreter: str = "") -> Iterator[str]:
    """Paths to try, the likeliest first; the only one when it was given, or named in the environment."""
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
    """The candidates that answer. Raises ``SetupError`` for a named one that does not."""
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
    """The first interpreter with Lava. Raises ``SetupError`` when there is none."""
    answering = found(interpreter)
    for one in answering:
        if one.lava is not None:
            return one
    seen = ", ".join(f"{one.path} (Python {one.python}, no {_PACKAGE})" for one in answering) or "none"
    remedy = f"Run `rig doctor loihi2 --build`, set {VARIABLE}, or give its path (option interpreter)"
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
        return [*findings, SetupFinding(False, "no interpreter has Lava", "Run `rig doctor loihi2 --build`")]
    remedy = f"Install Python {PYTHON} (pyenv install {PYTHON}), then run `rig doctor loihi2 --build`"
    return [*findings, SetupFinding(False, f"no Python {PYTHON}, which Lava needs", remedy)]


def built(say: Say, interpreter: str = "") -> str:
    """Make a new environment and install Lava in it; gives the path of its interpreter.

    ``say`` gets a line for each step and each package. Raises ``SetupError`` when there is no Python 3.10, and when
    venv or pip fail, with their last lines. A network or an index of packages is needed.
    """
    bases = [one for one in _bases(interpreter) if one.fits]
    if not bases:
        what = f"Lava needs Python {PYTHON}, and this version was not found"
        remedy = f"Install this Python (pyenv install {PYTHON}), or give its path (option interpreter)"
        raise SetupError(what, field="interpreter", value=interpreter, remedy=remedy)
    target = environment()
    say(f"making {target} with {bases[0].path}")
    _run([bases[0].path, "-I", "-m", "venv", "--clear", str(target)], say)
    python = str(target / "bin" / "python")
    say(f"installing {' '.join(PINS)}")
    _run([python, "-I", "-m", "pip", "install", "--no-input", "--disable-pip-version-check", *PINS], say)
    return python


def _bases(interpreter: str) -> list[Interpreter]:
    """The interpreters to build with, without the one that is to be replaced."""
    own = environment().resolve()
    with suppress(RigError):
        return [one for one in found(interpreter) if own not in Path(one.path).absolute().parents]
    return []


def _run(args: list[str], say: Say) -> None:
    try:
        process = subprocess.Popen(
            args,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        )
    except OSError as error:
        raise _failed(args, str(error)) from error
    lines: list[str] = []
    with process:
        assert process.stdout is not None
        try:
            for line in process.stdout:
                lines = [*lines[-20:], line.rstrip()]
                if line.startswith(("Collecting", "Processing", "Installing", "Successfully")):
                    say(line.rstrip()[:120])
            code = process.wait(_BUILD_S)
        except BaseException:
            process.kill()
            raise
    if code:
        raise _failed(args, " | ".join(lines[-3:]))


def _failed(args: list[str], why: str) -> SetupError:
    remedy = "Correct the cause, such as disk space or the package index, then run `rig doctor loihi2 --build` again"
    return SetupError(f"{' '.join(args[:4])} failed: {why[-400:]}", field="build", value=args[0], remedy=remedy)
