"""The JSON Schemas of the lines of ``events.jsonl`` and of ``submission.json``, generated from the structs.

Run it as ``python -m tests.support.schema``.
"""

import ast
import inspect
import json
from pathlib import Path
from typing import Any

import msgspec

from rig import types
from rig.network import description
from rig.recording import events as lines, records, submission

Json = dict[str, Any]
FOLDER = Path(lines.__file__).parent / "schemas" / "generated"
DIGEST = "^[0-9a-f]{64}$"
CHAIN: Json = {
    "seq": {"type": "integer", "minimum": 0, "description": "Number of the line, counted from 0."},
    "prev": {
        "type": "string",
        "pattern": DIGEST,
        "description": "SHA-256 of the line before, without its newline; 64 zeros on the first line.",
    },
}


def schemas() -> dict[str, Json]:
    """Return the schemas ``start``, ``event``, ``stop`` and ``submission``, draft 2020-12."""
    _, parts = msgspec.json.schema_components(lines.LINES.values(), ref_template="#/$defs/{name}")
    names = {type_: line.__name__ for type_, line in lines.LINES.items()}
    _describe(parts)
    start, stop = parts.pop(names["start"]), parts.pop(names["stop"])
    del start["properties"]["as_recorded"]
    start["properties"]["schema"]["const"] = lines.SCHEMA
    stop["properties"]["files"]["additionalProperties"]["pattern"] = DIGEST
    cases = [
        {"if": {"properties": {"type": {"const": type_}}}, "then": {"$ref": f"#/$defs/{name}"}}
        for type_, name in names.items()
        if type_ not in ("start", "stop")
    ]
    event = {
        "description": "A line between the first and the last. Lines of other types and other fields are allowed.",
        "type": "object",
        "properties": {"type": {"type": "string", "not": {"enum": ["start", "stop"]}}},
        "required": ["type"],
        "allOf": cases,
    }
    named = {name: _whole(name, body, parts) for name, body in (("start", start), ("event", event), ("stop", stop))}
    return named | {"submission": _submission()}


def _submission() -> Json:
    (reference,), parts = msgspec.json.schema_components([submission.Submission], ref_template="#/$defs/{name}")
    _describe(parts)
    body = parts.pop(reference["$ref"].rpartition("/")[2])
    about = parts["About"]
    about["required"] = [name for name in about["properties"] if name != "notes"]
    for name in about["required"]:
        about["properties"][name] |= {"pattern": r"\S"} if name != "date" else {"pattern": r"^\d{4}-\d{2}-\d{2}$"}
    head = {"$schema": "https://json-schema.org/draft/2020-12/schema", "$id": "urn:neurorig:submission:1"}
    return {**head, **body, "$defs": parts}


def _whole(name: str, body: Json, parts: dict[str, Json]) -> Json:
    """Return a self-contained schema: with the chain's fields and every part that it refers to."""
    used: dict[str, Json] = {}
    waiting = [body]
    while waiting:
        text = json.dumps(waiting.pop())
        for part, schema in parts.items():
            if f'"#/$defs/{part}"' in text and part not in used:
                used[part] = schema
                waiting.append(schema)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": f"urn:neurorig:run:1:{name}",
        **body,
        "properties": CHAIN | body["properties"],
        "required": [*CHAIN, *body["required"]],
        "$defs": used,
    }


def _describe(parts: dict[str, Json]) -> None:
    """Give each property the docstring below its field; Python 3.13 removes the indent of class docstrings."""
    for part in parts.values():
        if "description" in part:
            part["description"] = inspect.cleandoc(part["description"])
    for module in (description, types, records, lines, submission):
        for node in ast.parse(inspect.getsource(module)).body:
            if isinstance(node, ast.ClassDef) and node.name in parts:
                for field, below in zip(node.body, node.body[1:], strict=False):
                    match field, below:
                        case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text))):
                            parts[node.name]["properties"][name.rstrip("_")]["description"] = inspect.cleandoc(text)


def text_of(schema: Json) -> str:
    """Return a schema as the text of its file."""
    return json.dumps(schema, indent=2) + "\n"


if __name__ == "__main__":
    for name, schema in schemas().items():
        (FOLDER / f"{name}.json").write_text(text_of(schema))
