"""``rig list``: show what is registered, or the options of one name."""

from __future__ import annotations

import argparse
import re
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from rig.errors import DISTRIBUTION, UnknownNameError, UsageError
from rig.plugin_list import SHOWN, describe
from rig.terminal import answer, width, wrapped

if TYPE_CHECKING:
    from rig.factories import Factory, Option
    from rig.types import Rules


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "name", nargs="?",
        help="show the options of this device, meter, scenario, workload or importer, or what a set of rules asks",
    )  # fmt: skip


def run(args: argparse.Namespace) -> int:
    """Print what is registered, or the options of one name. Raises ``UnknownNameError``."""
    if not args.name:
        rows = describe()
        return answer(rows, *_table(rows), as_json=args.json)
    document, lines = _options(args.name)
    return answer(document, *"\n".join(lines).splitlines(), as_json=args.json)


def _table(rows: list[dict[str, Any]]) -> list[str]:
    """Return the rows as aligned text that fits the width of the terminal."""
    lines = []
    for group in SHOWN:
        lines.append(group)
        for r in (r for r in rows if r["group"] == group):
            missing = "" if r["installed"] else f"pip install '{DISTRIBUTION}[{r['extra']}]': "
            simulated = "[simulator] " if r["modes"] == ["simulator"] else ""
            others = "" if r["package"] == DISTRIBUTION else f"[of {r['package']}] "
            head = f"{'✓' if r['installed'] else '-'} {r['name']:16} "
            text = f"{head}{missing}{others}{simulated}{r['description'].replace('``', '`')}"
            lines += wrapped(text, width(), " " * len(head))
    told = "✓ is installed. `rig list NAME` shows its options. For your own file, write path.py:function as NAME."
    return [*lines, "", *wrapped(told, width(), "")]


def _options(name: str) -> tuple[dict[str, Any], list[str]]:
    """Return the options of every plugin of this name, by group and as text. Raises ``UnknownNameError``."""
    from rig.factories import options_of  # these take longer to import than the list of all names
    from rig.plugins import load, names

    found = {group: load(group, name) for group in (*SHOWN, "plants") if name in names(group)}
    if ":" in name:
        found = {"functions": load("devices", name)}
    if not found:
        raise UnknownNameError("name", name, sorted({n for group in SHOWN for n in names(group)}))
    taken = {group: options_of(factory) for group, factory in found.items() if group != "rules"}
    options = {group: {o.name: _option(o) for o in of.values()} for group, of in taken.items()}
    if "rules" in found:
        from msgspec import to_builtins

        options["rules"] = {r.scenario: to_builtins(r, str_keys=True) for r in _rules_of(found["rules"])}
    lines = []
    for group, factory in found.items():
        lines += [f"{'simulated bench' if group == 'plants' else group.removesuffix('s')} {name}", *_told(factory)]
        if group == "rules":
            lines += _asked(factory)
            continue
        lines += [f"  {key:25} {o['type']:6} {_default(o)}" for key, o in options[group].items()]
    return options, lines


def _told(factory: Factory) -> list[str]:
    """Return the docstring of a factory for users, without the errors that it raises."""
    paragraphs = [" ".join(part.split()) for part in (factory.__doc__ or "").replace("``", "`").split("\n\n")]
    told = [re.split(r"(?:^| )Raises? ", part)[0] for part in paragraphs]
    return [line for part in told for line in wrapped(f"  {part}", width())]


def _option(option: Option) -> dict[str, Any]:
    kind = {"type": option.kind.__name__, "required": option.required}
    return kind if option.required else kind | {"default": option.default}


def _default(option: dict[str, Any]) -> str:
    if option["required"]:
        return "required"
    return "no default" if option["default"] in (None, "") else f"default {option['default']}"


def _rules_of(factory: Factory) -> list[Rules]:
    """Return the rules of a set, one for each scenario that it covers."""
    from rig.plugins import names

    found = []
    for scenario in names("scenarios"):
        with suppress(UsageError, LookupError):
            found.append(factory(scenario))
    return found


def _asked(factory: Factory) -> list[str]:
    """Return the requirements of a set in each scenario, each with its source."""
    from dataclasses import fields

    lines = []
    for rules in _rules_of(factory):
        lines.append(f"\n{rules.scenario}")
        for field in fields(rules)[4:]:
            value = getattr(rules, field.name)
            if field.name == "reports":
                lines += [f"  reports {name:22} {rules.source_of(name)}" for name in value]
            elif field.name != "sources" and value is not None and value is not False:
                lines.append(f"  {field.name:17} {value!s:12} {rules.source_of(field.name)}")
    return lines
