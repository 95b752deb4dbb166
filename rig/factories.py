"""Calls factories with options.

The signature of a factory declares what it needs. The rig passes the parameters that it knows by name (``INJECTED``).
Every other keyword-only parameter is an option of the user, with its annotation as type and its default.
"""

import inspect
import math
import types
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from rig.errors import RigError, SetupError, UnknownNameError, UsageError, closest, number_wanted, place, refused, said

Factory = Callable[..., Any]


@dataclass(frozen=True)
class Option:
    """One option of a factory."""

    name: str
    kind: type
    default: Any
    optional: bool

    @property
    def required(self) -> bool:
        """Return whether the option has no default, so that the user must give it."""
        return self.default is inspect.Parameter.empty


def options_of(factory: Factory) -> dict[str, Option]:
    """Return the options that a factory declares, by name."""
    hints = _hints(factory)
    found = {}
    for p in inspect.signature(factory).parameters.values():
        if p.kind is inspect.Parameter.KEYWORD_ONLY and p.name not in INJECTED:
            kind, optional = _plain_type(hints.get(p.name, str))
            found[p.name] = Option(p.name, kind, p.default, optional)
    return found


INJECTED = ("bench", "clock", "device", "workload", "simulate", "phases", "rules", "purpose", "metered")
STATE_POWER = 'state its power: rig.blocking(answer, power={"core": (idle_w, busy_w)}), with --meter mock'


def build(factory: Factory, given: Mapping[str, Any], options: Mapping[str, str]) -> Any:
    """Call a factory with the parameters that it names and with its own options.

    Raises ``UsageError`` for a value of the wrong type or a missing required option, and ``SetupError`` for a parameter
    that is not available or if the factory raises anything but a ``RigError``.
    """
    declared = options_of(factory)
    arguments: dict[str, Any] = {}
    hints = _hints(factory)
    for p in inspect.signature(factory).parameters.values():
        if p.name in declared:
            continue
        if p.kind is inspect.Parameter.POSITIONAL_ONLY:
            what = f"{_called(factory)} has the positional-only parameter {p.name}"
            remedy = "Remove the / from its signature: the rig passes names"
            raise SetupError(what, field=p.name, value=_called(factory), remedy=remedy)
        if p.name in given and given[p.name] is not None:
            if plain_hint(hints.get(p.name)) and not isinstance(given[p.name], (str, int, float)):
                raise _reserved(factory, p.name)
            arguments[p.name] = given[p.name]
        elif p.default is inspect.Parameter.empty and p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL):
            raise _unmet(factory, p.name)
    arguments |= {key: _converted(declared[key], text) for key, text in options.items() if key in declared}
    if missing := [option for option in declared.values() if option.required and option.name not in arguments]:
        name, kind = missing[0].name, missing[0].kind.__name__
        what = f"{_called(factory)} needs the option {name}"
        raise UsageError(what, field=name, remedy=f"Add --option {name}=VALUE, of type {kind}")
    try:
        return factory(**arguments)
    except RigError:
        raise
    except (Exception, SystemExit) as error:
        what = f"{_called(factory)} failed: {said(error)}"
        raise SetupError(what, field=_called(factory), value=said(error), remedy=_mend(error)) from error


def _mend(error: BaseException) -> str:
    """Return the remedy for an error that a factory raised: about a file, the hardware, or the factory's code."""
    if isinstance(error, OSError) and error.filename is not None:
        return f"Check that {error.filename} is there and may be opened"
    if isinstance(error, OSError):
        return "Check its cable and its port"
    return f"Correct it or its options: {place(error)}".removesuffix(": ")


def plain_hint(hint: Any) -> bool:
    """Return whether a user can write values of an annotation: a text or a number, or perhaps None."""
    members = typing.get_args(hint) if typing.get_origin(hint) in (typing.Union, types.UnionType) else (hint,)
    return all(m in (str, int, float, type(None)) for m in members)


def _reserved(factory: Factory, name: str) -> SetupError:
    what = f"{_called(factory)} has an option {name}, which is the name of a parameter that the rig passes"
    return SetupError(what, field=name, remedy=f"Rename the option; reserved names are {', '.join(INJECTED)}")


@contextmanager
def located(places: Mapping[str, str]) -> Iterator[None]:
    """Put the place in a bench file before the message of an error about an option.

    ``places`` has FILE:LINE and key by option, and the place of the table under ``""``. If the remedy is to add an
    option, the remedy then names the place in the file, not the command line.
    """
    try:
        yield
    except RigError as error:
        if error.field in places and error.field:
            error.message = f"{places[error.field]}: {error.message}"
            if error.example:
                table = places[""].rpartition(" ")[2]
                error.remedy = f'Write {error.field} = "{error.example}" among the options of [{table}]'
        raise


def _unmet(factory: Factory, name: str) -> SetupError:
    if name in INJECTED:
        needed, remedy = f"a {name}", "Choose another"
        if name == "workload":
            remedy = "Add --workload NAME"
        if name == "bench":
            needed = "a simulated bench"
            remedy = f"Add --simulate if the device has a simulator. If you wrote the device, {STATE_POWER}"
        return SetupError(f"{_called(factory)} needs {needed}, but there is none", field=name, remedy=remedy)
    what = f"{_called(factory)} has a parameter {name}, which the rig does not pass"
    remedy = f"Name a function that opens the driver. The rig passes {', '.join(INJECTED)} by name; options are "
    remedy += "keyword-only parameters. rig.blocking(f) makes a device from f(sample), rig.solver(f) from f(model)"
    return SetupError(what, field=name, value=_called(factory), remedy=remedy)


def values_of(factory: Factory, options: Mapping[str, str]) -> dict[str, Any]:
    """Return every declared option with its converted value or default."""
    declared = options_of(factory)
    defaults = {name: option.default for name, option in declared.items() if not option.required}
    return defaults | {key: _converted(declared[key], text) for key, text in options.items() if key in declared}


def needs(factory: Factory, name: str) -> bool:
    """Return whether a factory has a parameter of this name without a default."""
    p = inspect.signature(factory).parameters.get(name)
    return p is not None and p.default is inspect.Parameter.empty


def takes(factory: Factory, name: str) -> bool:
    """Return whether a factory has a parameter of this name."""
    return name in inspect.signature(factory).parameters


def split_options(texts: list[str], takers: Mapping[str, Factory]) -> dict[str, dict[str, str]]:
    """Assign ``key=value`` texts to the takers (device, meter, ...) that declare the key.

    ``device.key=value`` names one taker. A key without a taker's name goes to all meters that declare it, or to a
    device and its simulated bench. Raises ``UnknownNameError`` for a key that no taker declares. Raises ``UsageError``
    for a text without ``=``, for a value of another type than declared, and for a key that names no taker and that
    takers of several kinds declare.
    """
    declared = {who: options_of(factory) for who, factory in takers.items()}
    out: dict[str, dict[str, str]] = {who: {} for who in takers}
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals or not key:
            raise refused("option", text, "Write --option key=value", f"option {text!r} is not key=value")
        who, dot, bare = key.partition(".")
        chosen = [who] if dot and who in declared else [w for w, known in declared.items() if key in known]
        name = bare if dot and who in declared else key
        if not chosen or name not in declared[chosen[0]]:
            raise _unknown_option(key, chosen or list(declared), declared)
        if len(kinds := {"device" if w == "bench" else w.rstrip("0123456789"): w for w in chosen}) > 1:
            first, second, *_ = kinds
            remedy = f"Write {first}.{key}={value} or {second}.{key}={value}"
            raise refused(key, value, remedy, f"{key} is an option of the {first} and of the {second}")
        for w in chosen:
            _converted(declared[w][name], value, w)
            out[w][name] = value
    return out


def _unknown_option(key: str, asked: Sequence[str], declared: Mapping[str, Mapping[str, Option]]) -> UnknownNameError:
    """Return the error for an option that none of the ``asked`` takers declares."""
    error = UnknownNameError("option", key, sorted({k for who in asked for k in declared[who]}))
    bare = key.rpartition(".")[2]
    if key.startswith("bench."):
        error.remedy = "Only a simulated device has a bench with virtual time. Leave out this option and --speed"
    elif takers := [who for who, options in declared.items() if bare in options]:
        error.remedy = f"It is an option of the {takers[0]}: write {takers[0]}.{bare}"
    else:
        where = "`rig list NAME` shows the options of a device, meter, scenario or workload"
        error.remedy = closest(bare, error.known, where)
    return error


def _hints(factory: Factory) -> dict[str, Any]:
    """Return annotations by parameter; if some cannot be resolved at run time, only those of plain types."""
    function = factory.__init__ if isinstance(factory, type) else factory  # type: ignore[misc]
    try:
        return typing.get_type_hints(function)
    except Exception:
        plain: dict[str, Any] = {"int": int, "float": float, "bool": bool, "str": str}
        texts = {p.name: str(p.annotation) for p in inspect.signature(factory).parameters.values()}
        found = {name: (plain.get(text.split("|")[0].strip()), "None" in text) for name, text in texts.items()}
        return {name: kind | None if optional else kind for name, (kind, optional) in found.items() if kind}


def _plain_type(hint: Any) -> tuple[type, bool]:
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        members = [a for a in typing.get_args(hint) if a is not type(None)]
        return (_plain_type(members[0])[0] if len(members) == 1 else str), type(None) in typing.get_args(hint)
    if typing.get_origin(hint) is typing.Literal:
        return type(typing.get_args(hint)[0]), False
    return (hint if isinstance(hint, type) else str), False


def _converted(option: Option, text: str, who: str = "") -> Any:
    """Return the text as the option's type. ``who`` is the taker that an error names."""
    if option.optional and text.lower() in ("none", ""):
        return None
    if option.kind is bool:
        if text.lower() in ("true", "yes", "1", "on"):
            return True
        if text.lower() in ("false", "no", "0", "off"):
            return False
        raise _bad(option, text, "true or false", who)
    if option.kind in (int, float):
        try:
            number = option.kind(text)
        except ValueError as error:
            raise _bad(option, text, number_wanted(text, option.kind is int), who) from error
        if isinstance(number, float) and not math.isfinite(number):
            raise _bad(option, text, "a finite number", who)
        if number < 0 and option.name.split("_")[-1] == "seed":  # numpy's generators accept no negative seed
            raise _bad(option, text, "a whole number of 0 or more", who)
        return number
    return text


def _bad(option: Option, text: str, wanted: str, who: str) -> UsageError:
    remedy = f"Give {wanted}" + ("" if option.required or option.default is None else f" (default {option.default})")
    if who:
        remedy += f". It goes to the {who}"
    return UsageError(f"option {option.name} is {text!r}", field=option.name, value=text, remedy=remedy)


def _called(factory: Factory) -> str:
    module, name = getattr(factory, "__module__", ""), getattr(factory, "__qualname__", repr(factory))
    return f"{module.partition('@')[0]}.{name}"
