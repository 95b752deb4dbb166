"""Text of the pages that a program writes: lists and tables from code, schemas and commands, put at marked places."""

from __future__ import annotations

import ast
import contextlib
import csv
import importlib.metadata
import inspect
import io
import itertools
import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from sphinx.application import Sphinx

ROOT = Path(__file__).parents[1]


def fill_marked_place(_app: Sphinx, docname: str, source: list[str]) -> None:
    """Put generated text into a page that has a mark for it."""
    marked = {
        "reference/api": {"<!-- public names -->": public_names, "<!-- fixtures -->": fixtures},
        "reference/modules": {"<!-- packages and modules -->": packages},
        "reference/command-line": {"<!-- help texts -->": help_texts, "<!-- exit codes -->": exit_codes},
        "reference/options": {"<!-- options -->": options},
        "reference/quantities": {"<!-- quantities -->": quantities},
        "reference/run-directory": {"<!-- lines of events.jsonl -->": lines_of_events, "<!-- a rail -->": rails},
        "reference/rules": {"<!-- rules and parameters -->": rules_and_parameters, "<!-- sentences -->": sentences},
    }
    for mark, made in marked.get(docname, {}).items():
        if mark not in source[0]:
            raise ValueError(f"{docname} has no place {mark}. Put the mark back where the list belongs")
        source[0] = source[0].replace(mark, "\n\n".join(made()))


def public_names() -> Iterator[str]:
    """Yield one block for each name of ``rig.__all__``, by kind."""
    import rig

    kinds: dict[str, list[str]] = {"Functions": [], "Protocols": [], "Classes": [], "Others": []}
    for name in getattr(rig, "__all__", ()):
        value: Any = getattr(rig, name)
        if isinstance(value, type):
            kind = "Protocols" if getattr(value, "_is_protocol", False) else "Classes"
            block = f".. autoclass:: rig.{name}\n   :members:"
        else:
            kind = "Functions" if inspect.isfunction(value) else "Others"
            block = f".. {'autofunction' if kind == 'Functions' else 'autodata'}:: rig.{name}"
        kinds[kind].append(f"```{{eval-rst}}\n{block}\n```")
    for title, blocks in kinds.items():
        yield from [f"## {title}", *blocks] if blocks else []


def fixtures() -> Iterator[str]:
    """Yield the name and the docstring of each fixture of the pytest plug-in, read from the source."""
    for node in ast.parse((ROOT / "rig" / "testing.py").read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef) and any("fixture" in ast.unparse(d) for d in node.decorator_list):
            yield f"### {node.name}\n\n{(ast.get_docstring(node) or '').replace('``', '`')}"


def packages() -> Iterator[str]:
    """Yield the docstring of every package, and the first sentence of each of its modules, read from the source."""
    for top in ("rig", "drivers", "scenarios", "reports", "fixtures"):
        for file in sorted((ROOT / top).rglob("__init__.py")):
            modules = ((m.name, _docstring(m)) for m in sorted(file.parent.glob("*.py")) if m != file)
            rows = [f"| `{name}` | {text.splitlines()[0].replace('|', '&#124;')} |" for name, text in modules if text]
            yield f"## `{file.parent.relative_to(ROOT)}/`\n\n{_docstring(file)}"
            yield "\n".join(["| module | what it does |", "|---|---|", *rows]) if rows else ""


def _docstring(file: Path) -> str:
    return ast.get_docstring(ast.parse(file.read_text(encoding="utf-8"))) or ""


def lines_of_events() -> Iterator[str]:
    """Yield a table of fields for each type of line, and for the objects of the start line, from the JSON Schemas."""
    start, event, stop = _schema("start"), _schema("event"), _schema("stop")
    kinds = [part for part in event["$defs"].values() if "enum" in part["properties"].get("type", {})]
    yield _fields("start", start)
    yield from (_fields(f"start: {name}", start["$defs"][record]) for name, record in OBJECTS.items())
    yield from (_fields(kind["properties"]["type"]["enum"][0], kind) for kind in kinds)
    yield _fields("stop", stop)


def rails() -> Iterator[str]:
    """Yield the tables of the objects that describe a rail, from the JSON Schemas."""
    parts = _schema("start")["$defs"]
    titles = {"Rail": "The rail object", "Conversion": "Its conversion", "Accuracy": "Its accuracy"}
    yield from (_fields(title, parts[name]) for name, title in titles.items())


def _schema(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((ROOT / f"rig/recording/schemas/generated/{name}.json").read_text("utf-8"))
    return found


OBJECTS = {
    "clocks": "ClockInfo", "device": "DeviceRecord", "meters": "MeterRecord", "scenario": "ScenarioRecord",
    "workload": "WorkloadRecord", "session": "SessionLink",
}  # fmt: skip
"""Objects of the start line with their own table, and their names in the schema."""


def _fields(title: str, schema: dict[str, Any]) -> str:
    needed = schema.get("required", ())
    rows = [
        f"| {f'**`{name}`**' if name in needed else f'`{name}`'} | {_type(field)} | {_told(field)} |"
        for name, field in schema["properties"].items()
        if name not in ("seq", "prev", "type")
    ]
    return "\n".join([f"### {title}", "", _told(schema), "", "| field | type | meaning |", "|---|---|---|", *rows])


def _type(field: dict[str, Any]) -> str:
    choices = [choice for choice in field.get("anyOf", [field]) if choice.get("type") != "null"]
    names = [c.get("type", "object" if "$ref" in c else "text" if "enum" in c else "any") for c in choices]
    return " or ".join(names)


def _told(part: dict[str, Any]) -> str:
    return part.get("description", "").replace("``", "`").replace("\n", " ").replace("|", "&#124;")


def rules_and_parameters() -> Iterator[str]:
    """Yield the output of ``rig list neurobench-1.0``, and the parameters that each workload of the track declares."""
    from scenarios.workloads.asc.workload import open_workload as asc
    from scenarios.workloads.qubo_mis.workload import open_workload as qubo

    os.environ["COLUMNS"] = "100"
    (script,) = importlib.metadata.entry_points(group="console_scripts", name="rig")
    yield f"```text\n{_printed(script.load(), ['list', 'neurobench-1.0'])}```"
    rows = [
        f"| `{workload.name}` | {name} | {_allowed(parameter.allowed)} | {parameter.source.replace('|', '&#124;')} |"
        for workload in (asc(), qubo(nodes=50))
        for benchmark in [workload.benchmark]
        for name, parameter in (
            ("scenario", benchmark.scenarios),
            *benchmark.parameters.items(),
            *benchmark.options.items(),
        )
    ]
    yield "\n".join(["| workload | parameter | allowed | from |", "|---|---|---|---|", *rows])


def sentences() -> Iterator[str]:
    """Yield a table for each part of NeuroBench's text: every sentence, what the rig does, and its check."""
    with (ROOT / "docs" / "reference" / "rules.csv").open(encoding="utf-8", newline="") as file:
        for part, rows in itertools.groupby(csv.DictReader(file), key=lambda row: row["part"]):
            yield f"### {part}"
            told = [" | ".join(["", *list(row.values())[1:], ""]).strip() for row in rows]
            yield "\n".join(["| | the text | the rig | checked by |", "|---|---|---|---|", *told])


def _allowed(values: Any) -> str:
    told = [str(value) for value in values]
    return ", ".join(told if len(told) <= 12 else [*told[:11], "..."])


def help_texts() -> Iterator[str]:
    """Yield the output of ``rig COMMAND --help`` for each command, and of ``--help-all`` for ``measure``."""
    os.environ["COLUMNS"] = "100"
    (script,) = importlib.metadata.entry_points(group="console_scripts", name="rig")
    main = script.load()
    commands = re.findall(r"^    (\w+)  ", _help(main, []), flags=re.MULTILINE)
    for words in [[command] for command in commands] + [["workload", "export"]]:
        yield f"### rig {' '.join(words)}\n\n```text\n{_help(main, words)}```"


def options() -> Iterator[str]:
    """Yield the output of ``rig list NAME`` for each device, meter, scenario, workload and importer."""
    from rig.plugins import names

    os.environ["COLUMNS"] = "100"
    (script,) = importlib.metadata.entry_points(group="console_scripts", name="rig")
    main = script.load()
    kinds = ("devices", "meters", "scenarios", "workloads", "importers")
    for name in sorted({name for kind in kinds for name in names(kind)}):
        yield f"## {name}\n\n```text\n{_printed(main, ['list', name])}```"


def quantities() -> Iterator[str]:
    """Yield a table of every quantity that the rig computes: its name in ``results.json``, its title and its unit."""
    from rig.analysis.result.figure_catalogue import CATALOGUE

    rows = [f"| `{name}` | {entry.title} | {entry.unit} |" for name, entry in CATALOGUE.items()]
    yield "\n".join(["| name | title | unit |", "|---|---|---|", *rows])


def exit_codes() -> Iterator[str]:
    """Yield a table of the exit codes, with the first sentence of each error that has its own code."""
    from rig import errors

    kinds = [k for _, k in inspect.getmembers(errors, inspect.isclass) if issubclass(k, errors.Ended)]
    rows = sorted((k.exit_code, k.__name__, inspect.getdoc(k) or "") for k in kinds if "exit_code" in vars(k))
    told = [f"| {code} | `{name}` | {text.splitlines()[0]} |" for code, name, text in rows if name != "Ended"]
    yield "\n".join(["| code | error | when |", "|---|---|---|", *told])


def _help(main: Any, words: list[str]) -> str:
    return _printed(main, [*words, "--help-all" if words == ["measure"] else "--help"])


def _printed(main: Any, words: list[str]) -> str:
    with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.suppress(SystemExit):
        main(words)
    return out.getvalue()
