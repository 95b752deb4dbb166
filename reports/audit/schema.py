"""Checks a document against the generated schemas of the run directory."""

from __future__ import annotations

import functools
import itertools
import json
from pathlib import Path
from typing import Any

from jsonschema import Draft202012Validator
from jsonschema.exceptions import best_match

import rig.types
from reports.audit.files import clean

FOLDER = Path(rig.types.__file__).parent / "recording" / "schemas"
MOST = 20
"""So many faults of a document are enough."""


@functools.cache
def _validator(name: str, part: str) -> Draft202012Validator:
    whole = json.loads((FOLDER / f"{name}.json").read_bytes())
    return Draft202012Validator({"$defs": whole["$defs"], "$ref": f"#/$defs/{part}"} if part else whole)


def faults(value: Any, name: str, part: str = "") -> list[str]:
    """What of a document differs from a schema (start, event, stop), or from one ``part`` of it, in words."""
    found = itertools.islice(_validator(name, part).iter_errors(value), MOST)
    nearest = [best_match([error]) for error in found]  # of several ways, the one that fits best
    return [clean(f"{error.json_path.removeprefix('$')}: {error.message}".lstrip(".: ")) for error in nearest]
