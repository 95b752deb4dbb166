"""Import Rockpool's Xylo Audio 2 modules without a download, and without running pip.

The ``samna`` on PyPI is a stub that runs pip when it is imported, and ``import rockpool`` imports it. If the vendor's
samna, which has compiled files, is absent, a stand-in module named samna is made before Rockpool is imported: a
simulation needs samna's names, but never uses them. Packages that Rockpool needs for other work than simulation take
most of the time of the import, so they are imported when they are first used.
"""

import importlib
import importlib.abc
import importlib.metadata
import importlib.util
import os
import pkgutil
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib.machinery import EXTENSION_SUFFIXES, ModuleSpec
from pathlib import PurePath
from types import ModuleType
from typing import Any

from drivers.devices.xylo.kit import Kit, kits_of, unusable
from rig.errors import MissingExtraError, SetupError

_PACKAGE = "rockpool.devices.xylo.syns61201"
_NEEDED = ("rockpool", "xylosim", "bitstruct", "packaging")
_LATER = ("matplotlib", "scipy.fftpack", "scipy.interpolate", "scipy.signal")
"""Modules for pictures, resampling and models of front ends, which are imported when they are first used."""
_COMPILED = (*EXTENSION_SUFFIXES, ".so", ".pyd", ".dylib", ".dll")


@dataclass(frozen=True, slots=True)
class XyloAudio2:
    """The parts of Rockpool that the rig uses, all for Xylo Audio 2 (SYNS61201)."""

    simulator: Any
    quantize: Callable[..., dict[str, Any]]
    cycles_model: Callable[..., tuple[float, float]]
    front_end: Callable[..., Any]


def load_xylo_audio2() -> XyloAudio2:
    """Import Rockpool's Xylo Audio 2 package.

    Raises MissingExtraError if rockpool, xylosim, bitstruct or packaging is not installed, and SetupError
    if Rockpool was imported earlier without a usable samna, because Rockpool does not look for samna again.
    """
    missing = [name for name in _NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        what = f"the Xylo driver needs {', '.join(missing)}"
        raise MissingExtraError(what, field="device", value="xylo", remedy="Run: pip install 'neurorig[xylo]'")
    with _no_package_index(), _stand_in_for_samna(), _later():
        package = importlib.import_module(_PACKAGE)
        quantize = importlib.import_module("rockpool.transform.quantize_methods").channel_quantize
    for name in ("XyloSim", "cycles_model"):
        if getattr(package, name).__name__ == "MissingBackendShim":
            what = f"rockpool was imported earlier in this process without samna and has no {name}"
            raise SetupError(what, field="device", value="xylo", remedy="Open the Xylo device in a fresh process")
    return XyloAudio2(package.XyloSim, quantize, package.cycles_model, package.AFESim)


def has_real_samna() -> bool:
    """Return whether the vendor's samna is installed. It looks at files and imports nothing."""
    try:
        files = importlib.metadata.files("samna") or ()
    except importlib.metadata.PackageNotFoundError:
        return False
    return any(PurePath(str(file)).name.endswith(_COMPILED) for file in files)


def attached_boards() -> list[Kit]:
    """Return the Xylo Audio boards that the vendor's samna opens, with the parts of Rockpool that drive them.

    Raises ``SetupError`` without samna, for the stub of the same name, or if the boards cannot be opened, and
    ``MissingExtraError`` without Rockpool.
    """
    if not has_real_samna():
        what, remedy = "samna, the driver of its vendor, is not installed", "Install the vendor's as Rockpool's manual "
        remedy += "describes, or add --simulate"
        with suppress(importlib.metadata.PackageNotFoundError):
            version = importlib.metadata.version("samna")
            what = f"samna {version} is the stub of the package index, not the vendor's driver"
            remedy = f"Run: pip uninstall samna (it was not imported, because that would run pip). {remedy}"
        raise unusable(f"no Xylo board found: {what}", remedy)
    load_xylo_audio2()  # raises an error that names missing packages
    with _no_package_index():
        samna = importlib.import_module("samna")
        return kits_of(samna, importlib.import_module("rockpool.devices.xylo.helper").find_xylo_hdks)


class _StandIn(ModuleType):
    """A module in which every public name exists: a capitalised name is a class, any other name a module."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.__spec__ = ModuleSpec(name, None, is_package=True)
        self.__path__: list[str] = []
        self.__version__ = "0.0.0+stand-in"

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        value = type(name, (), {}) if name[:1].isupper() else _StandIn(f"{self.__name__}.{name}")
        setattr(self, name, value)
        return value


class _Later(ModuleType):
    """Stands for a module or a name in it. The module is imported at the first call or use by ``isinstance``."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _Later(f"{self.__name__}.{name}")

    def __call__(self, *given: Any, **named: Any) -> Any:
        return pkgutil.resolve_name(self.__name__)(*given, **named)

    def __instancecheck__(self, instance: object) -> bool:
        return isinstance(instance, pkgutil.resolve_name(self.__name__))


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds packages and all of their modules, and makes them objects of the class ``kind`` instead of loading them."""

    def __init__(self, kind: type[ModuleType], *packages: str) -> None:
        self._kind, self._inside = kind, tuple(f"{name}." for name in packages)

    def find_spec(self, fullname: str, path: Sequence[str] | None, target: object = None) -> ModuleSpec | None:
        return ModuleSpec(fullname, self, is_package=True) if f"{fullname}.".startswith(self._inside) else None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return self._kind(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        return None


@contextmanager
def _finding(finder: _Finder) -> Iterator[None]:
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)


@contextmanager
def _stand_in_for_samna() -> Iterator[None]:
    """Make ``import samna`` find the stand-in inside this block and afterwards, unless the vendor's is installed."""
    if has_real_samna():
        yield
        return
    if not isinstance(sys.modules.get("samna"), _StandIn):
        sys.modules["samna"] = _StandIn("samna")
    with _finding(_Finder(_StandIn, "samna")):
        yield


@contextmanager
def _later() -> Iterator[None]:
    """Put stand-ins in place of the modules of ``_LATER`` that this block imports, and remove these after the block.

    So code outside the block still imports the modules themselves.
    """
    try:
        with _finding(_Finder(_Later, *_LATER)):
            yield
    finally:
        for name in [name for name, module in sys.modules.items() if type(module) is _Later]:
            del sys.modules[name]
            package, _, own = name.rpartition(".")
            vars(sys.modules.get(package, sys)).pop(own, None)


@contextmanager
def _no_package_index() -> Iterator[None]:
    """Keep any pip that an import starts from reaching a package index."""
    before = os.environ.get("PIP_NO_INDEX")
    os.environ["PIP_NO_INDEX"] = "1"
    try:
        yield
    finally:
        del os.environ["PIP_NO_INDEX"]
        os.environ.update({} if before is None else {"PIP_NO_INDEX": before})
