"""Find the factories of drivers, workloads and scenarios, by entry point or as ``path.py:name``.

A factory is the function that opens a driver, workload or scenario. Only the plugin that a user names is imported.
"""

from __future__ import annotations

import ast
import functools
import hashlib
import importlib
import importlib.util
import os
import stat
import sys
import types
import typing
from collections.abc import Iterable, Mapping, Sequence
from importlib.machinery import SourceFileLoader
from pathlib import Path
from typing import Any

from rig import plugin_list
from rig.child_process import Kept
from rig.errors import DISTRIBUTION, SetupError, UnknownNameError, UsageError, missing_extra, refused, said

if typing.TYPE_CHECKING:
    from rig.factories import Factory

GROUPS = (
    "commands", "devices", "meters", "scenarios", "workloads", "problems", "rules", "plants", "importers", "reports",
)  # fmt: skip


def registered(group: str) -> Sequence[plugin_list.Entry]:
    """Return the registered plugins of a group, sorted by name. Nothing is imported."""
    return _installed(tuple(sys.path))[group]


@functools.cache
def _installed(path: tuple[str, ...]) -> dict[str, tuple[plugin_list.Entry, ...]]:
    """Return all registered plugins by group. The result is kept, because every package in ``path`` must be opened."""
    found = sorted(plugin_list.registered())
    return {group: tuple(entry for entry in found if entry.group == group) for group in GROUPS}


def names(group: str) -> dict[str, plugin_list.Entry]:
    """Return the registered plugins of a group by name; of two with the same name, only the last."""
    return {e.name: e for e in registered(group)}


def problem_factory(name: str, task: str) -> Factory | None:
    """Return the function that makes a problem from a stored payload, by workload or task; None if both are unknown."""
    found = next((key for key in (name, task) if key in names("problems")), None)
    return None if found is None else load("problems", found)


def load(group: str, name: str) -> Factory:
    """Find a factory by its registered name, as ``path.py:name``, or as ``NAME:REST``.

    For ``NAME:REST``, the module of NAME must have a function ``named(rest)``, which returns the factory. Raises
    ``UsageError`` for an unknown name, a missing file, or a ``:REST`` that NAME does not take. Raises
    ``MissingExtraError`` if a plugin of the rig needs packages that are not installed. Raises ``SetupError`` if two
    packages registered the name, or if its package or file cannot be loaded.
    """
    if ".py:" in name:
        return _from_file(group, name)
    name, colon, rest = name.partition(":")
    if colon:  # for example dimod:PACKAGE.Sampler
        maker = getattr(sys.modules.get(load(group, name).__module__), "named", None)
        if maker is None:
            remedy = f"Write {name} alone, or path/to/file.py:function"
            raise refused(group.removesuffix("s"), f"{name}:{rest}", remedy, f"{name} takes no name after a colon")
        return typing.cast("Factory", maker(rest))
    known = registered(group)
    found = [entry for entry in known if entry.name == name]
    if not found:
        raise unknown(group.removesuffix("s"), name, (e.name for e in known))
    kind, entry = group.removesuffix("s"), found[0]
    if len(found) > 1:
        what = f"{kind} {name!r} is registered by {' and '.join(sorted({e.package for e in found}))}"
        remedy = "Uninstall all but one, or write path/to/file.py:function"
        raise SetupError(what, field=kind, value=name, remedy=remedy)
    try:
        with Kept():
            inner = filter(None, entry.attribute.split("."))
            return typing.cast("Factory", functools.reduce(getattr, inner, importlib.import_module(entry.module)))
    except ImportError as error:
        if entry.package == DISTRIBUTION:
            check_ours(entry.module.partition(".")[0])
            extras = ", ".join(entry.extras) or name
            raise missing_extra(f"{kind} {name!r}", error, extras, field=kind, value=name) from error
        raise _broken(kind, entry, error) from error
    except (Exception, SystemExit) as error:
        raise _broken(kind, entry, error) from error


def unknown(kind: str, name: str, known: Iterable[str]) -> UsageError:
    """Return the error for an unregistered name.

    For a Python file without ``:function``, the error lists its functions and classes; the file is read but not run.
    """
    path = name.rpartition(":")[0] or name
    if not path.endswith(".py") and ("/" in path or Path(path).exists()):
        return refused(kind, name, "Write path/to/file.py:function", f"{kind} {name!r} is no Python file")
    if not name.endswith(".py"):
        return UnknownNameError(kind, name, [*known, "./file.py:function"])
    if not Path(name).is_file():
        return refused(kind, name, "Write path/to/file.py:function", f"{name} is not a file")
    try:
        body = ast.parse(Path(name).read_bytes()).body
    except (OSError, ValueError, SyntaxError) as error:
        what = f"{kind} {name!r} cannot be read: {type(error).__name__}: {error}"
        return refused(kind, name, "Write path/to/file.py:function", what)
    kinds = (ast.FunctionDef, ast.ClassDef)
    functions = [node.name for node in body if isinstance(node, kinds) and not node.name.startswith("_")]
    meant = functions[0] if len(functions) == 1 else "FUNCTION"
    remedy = f"Write {name}:{meant}; it has {', '.join(functions) or 'none'}"
    return refused(kind, name, remedy, f"{kind} {name!r} names a file and no function")


def check_ours(package: str) -> None:
    """Raise ``SetupError`` if another distribution installed a package of the same name over this one."""
    from importlib.metadata import packages_distributions

    others = [name for name in packages_distributions().get(package, ()) if name != DISTRIBUTION]
    if others:
        what = f"the package {package} of {DISTRIBUTION} was overwritten by {others[0]}"
        remedy = f"Install {DISTRIBUTION} again in an environment of its own (a new venv, or `pipx install`)"
        raise SetupError(what, field="installation", value=others[0], remedy=remedy)


def _broken(kind: str, e: plugin_list.Entry, error: BaseException) -> SetupError:
    what = f"{kind} {e.name!r} is {e.module}:{e.attribute} of the package {e.package}, which cannot be loaded"
    remedy = f"Correct the package or its entry point, or uninstall it: pip uninstall {e.package}"
    return SetupError(f"{what}: {said(error)}", field=kind, value=e.name, remedy=remedy)


PROGRAMS = ("interpreter", "library", "path", "arguments", "play")
"""The ends of the names of options that name a program, its arguments, or a library to load."""


def code_in(names: Iterable[str], options: Iterable[str]) -> list[str]:
    """Return code that names and options give by path (``path.py:function``), and the options that name programs."""
    given = [text.partition("=") for text in options]
    programs = [f"{key}={value}" for key, _, value in given if value and key.endswith(PROGRAMS)]
    return [name for name in (*names, *(value for _, _, value in given)) if ".py:" in name] + programs


def digests_of(code: Iterable[str]) -> dict[str, str]:
    """Return the SHA-256 of each file in ``code`` that is named as ``path.py:function``, by its path."""
    files = {Path(name.rpartition(":")[0]) for name in code if ".py:" in name}
    return {str(file): hashlib.sha256(file.read_bytes()).hexdigest() for file in sorted(files) if file.is_file()}


def code_of_others(code: Sequence[str], source: Path, folder: Path) -> dict[str, str]:
    """Return the entries of ``code`` that other users may have written, each with the reason.

    ``code`` is from ``code_in``, and ``source`` is the file that names it. If others may have written ``source``, all
    entries are returned. Paths are relative to ``folder``. Files of programs are not examined.
    """
    if why := written_by_others(source):
        return dict.fromkeys(code, f"{source}, which names it, {why}")
    files = {name: folder / name.rpartition(":")[0] for name in code if ".py:" in name}
    found = {name: (file, written_by_others(file)) for name, file in files.items() if file.is_file()}
    return {name: f"{file} {why}" for name, (file, why) in found.items() if why}


def written_by_others(path: Path) -> str:
    """Return why other users can change a file or files beside it; empty if they cannot. Links are followed.

    Others can change a file if another user (except root) owns it or its folder, or if everyone may write to one of
    the two. A folder that a group of this user may write to is accepted, and so is a sticky folder such as ``/tmp``.
    """
    if not hasattr(os, "getuid"):  # only POSIX has owners and modes
        return ""
    file = path.resolve()
    own, inner, outer = (os.getuid(), 0), file.stat(), file.parent.stat()
    ours = outer.st_mode & stat.S_IWGRP and outer.st_gid in (os.getgid(), *os.getgroups())
    reasons = {
        "belongs to another user": inner.st_uid not in own,
        "may be written by everyone": inner.st_mode & stat.S_IWOTH,
        "lies in a folder that everyone may write": outer.st_mode & stat.S_IWOTH and not outer.st_mode & stat.S_ISVTX,
        "lies in a folder of another user": not (outer.st_uid in own or ours),
    }
    return next((why for why, so in reasons.items() if so), "")


def home_of(path: Path) -> Path:
    """Return the folder to which paths in a file are relative: the folder of the file itself, not of a link to it."""
    return path.resolve().parent if path.is_symlink() else path.parent


def check_trusted(code: Mapping[str, str], source: Path, trust: bool) -> None:
    """Raise ``UsageError`` for ``code`` that is named in the file ``source``, unless ``trust`` is set.

    Each entry of ``code`` includes the reason why others may have written it.
    """
    for name, why in () if trust else code.items():
        what = f"{source} names the code {name}, which would run here: {why}"
        raise refused("trust", name, "Read this code, and give --trust to run it", what)


def _from_file(group: str, name: str) -> Factory:
    path_text, _, attribute = name.rpartition(":")
    path = Path(path_text)
    if not path.is_file():
        remedy = f"Write path/to/file.py:function. A relative path starts at the current directory, {Path.cwd()}"
        raise UsageError(f"{path} is not a file", field=group, value=name, remedy=remedy)
    module = _module(group, name, path)
    found = getattr(module, attribute, None)
    if not callable(found):
        own = {k: v for k, v in vars(module).items() if callable(v) and not k.startswith("_")}
        known = [k for k, v in own.items() if v.__module__ == module.__name__]
        raise UnknownNameError(f"function in {path}", attribute, known, "")
    return typing.cast("Factory", found)


class _SourceLoader(SourceFileLoader):
    """Compiles the source at each load, because others may have written the bytecode file beside it."""

    def get_code(self, fullname: str) -> types.CodeType:
        path = self.get_filename(fullname)
        return self.source_to_code(self.get_data(path), path)


def _module(group: str, name: str, path: Path) -> types.ModuleType:
    """Return the file as a module. A file runs once unless it changes, so a device and a meter in it share a module."""
    key = f"{path.stem}@{abs(hash((path.resolve(), path.stat().st_mtime_ns))):x}"
    if key in sys.modules:
        return sys.modules[key]
    spec = importlib.util.spec_from_file_location(key, path, loader=_SourceLoader(key, str(path)))
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[key] = module  # dataclasses look up the names in their annotations here
    try:
        with Kept():
            spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        del sys.modules[key]
        what, remedy = f"{path} cannot be loaded: {said(error)}", "Correct the file"
        if isinstance(error, ModuleNotFoundError) and error.name and path.with_name(f"{error.name}.py").is_file():
            remedy = f"A file does not see its neighbours: set PYTHONPATH={path.resolve().parent}"
        raise SetupError(what, field=group, value=name, remedy=remedy) from error
    return module


def imported(module: str, what: str, extra: str, *, field: str = "meter", value: object = None) -> Any:
    """Import a module of a package that ``extra`` installs.

    Raises ``MissingExtraError``, which names ``what``, and ``SetupError`` if memory is too short.
    """
    try:
        return importlib.import_module(module)
    except (ImportError, OSError) as error:  # OSError: the package is installed, but its C library is missing
        raise missing_extra(what, error, extra, field=field, value=value) from error
