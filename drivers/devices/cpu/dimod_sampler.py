"""Any sampler of dimod on this computer as a solver: ``dimod:PACKAGE.Sampler``.

A solve is one call of the sampler's ``sample``. Each argument of ``sample`` that is a text or a number and has a
default is an option.
"""

import importlib
import inspect
import typing
from collections.abc import Callable
from importlib.metadata import packages_distributions
from typing import Any

from rig.errors import UnknownNameError, UsageError, refused
from rig.factories import plain_hint
from rig.plugins import imported
from rig.solving.device import solver_info
from rig.solving.function import solver
from rig.types import Device

EXAMPLE = "dimod:dwave.samplers.SimulatedAnnealingSampler"


def open_device() -> Device:
    """Open a sampler of dimod by name: --device dimod:PACKAGE.Sampler, such as dimod:dwave.samplers.TabuSampler.

    `dwave.samplers` has SimulatedAnnealingSampler, TabuSampler, SteepestDescentSampler and others; any other installed
    package works too. `rig list dimod:PACKAGE.Sampler` shows the options of a sampler.

    Raises UsageError, because no sampler is named.
    """
    raise refused("device", "dimod", f"Write dimod:PACKAGE.Sampler, such as {EXAMPLE}", "no sampler is named")


def named(path: str) -> Callable[..., Device]:
    """Return the factory of the sampler with this import path. The arguments of its ``sample`` become options.

    Raises ``UsageError`` if the path is not a sampler, ``MissingExtraError`` without dimod.
    """
    kind = _class_of(path)
    hints = _hints(kind.sample)
    _, _, *parameters = inspect.signature(kind.sample).parameters.values()
    options = [
        p.replace(kind=inspect.Parameter.KEYWORD_ONLY, annotation=hints[p.name])
        for p in parameters
        if p.name in hints and plain_hint(hints[p.name]) and p.default is not inspect.Parameter.empty
        and p.name not in _OWN
    ]  # fmt: skip
    takes_seed = any(p.name == "seed" for p in parameters)

    def open_sampler(*, seed: int = 0, default_s: float = 1.0, longest_s: float = 120.0, **given: Any) -> Device:
        sampler, chosen = kind(), {name: value for name, value in given.items() if value is not None}
        packages = tuple(dict.fromkeys(["dimod", *packages_distributions().get(path.partition(".")[0], [])]))

        def sample(model: Any, seed: int) -> Any:
            return sampler.sample(model, **chosen, **({"seed": seed} if takes_seed else {}))

        info = solver_info(
            f"dimod:{path}", f"{path} on this computer", packages, longest_s, schedule_depends_on_budget=False,
            solver=f"one call of {path}.sample",
            tuning={name: str(value) for name, value in chosen.items()} or "the sampler's defaults",
        )  # fmt: skip
        return solver(sample, info, seed=seed, default_s=default_s, longest_s=longest_s)

    own = [p for p in inspect.signature(open_sampler).parameters.values() if p.name in _OWN]
    open_sampler.__signature__ = inspect.Signature([*own, *options])  # type: ignore[attr-defined]
    open_sampler.__annotations__ = {p.name: p.annotation for p in options} | _OWN
    open_sampler.__doc__ = f"Open {path}. The seed of solve number k is drawn from ``seed`` and k."
    return open_sampler


_OWN = {"seed": int, "default_s": float, "longest_s": float}
"""The options that this driver adds to every sampler."""


def _class_of(path: str) -> Any:
    dimod = imported("dimod", f"device dimod:{path}", "qubo", field="device", value=f"dimod:{path}")
    module, _, name = path.rpartition(".")
    try:
        found = importlib.import_module(module or path)
    except ImportError as error:
        what = f"device dimod:{path} needs the module {module or path}: {error}"
        remedy = f"Install its package, or correct its name, such as {EXAMPLE}"
        raise UsageError(what, field="device", value=path, remedy=remedy) from error
    classes = {key: kind for key, kind in vars(found).items() if inspect.isclass(kind)}
    kinds = {key: kind for key, kind in classes.items() if issubclass(kind, dimod.Sampler)}
    if name not in kinds:
        raise UnknownNameError(f"dimod sampler in {module or path}", name, list(kinds), "")
    return kinds[name]


def _hints(function: Any) -> dict[str, Any]:
    try:
        return typing.get_type_hints(function)
    except (NameError, TypeError):
        return {}
