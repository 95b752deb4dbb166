"""Packages of optional extras, imported when what needs one is opened."""

from __future__ import annotations

import importlib
from typing import Any

from rig.errors import missing_extra


def imported(module: str, what: str, extra: str, *, field: str = "meter", value: object = None) -> Any:
    """Import a module of a package that ``extra`` installs. Raises ``MissingExtraError`` naming ``what`` needs it."""
    try:
        return importlib.import_module(module)
    except (ImportError, OSError) as error:  # OSError: a package is there and its C library is not
        raise missing_extra(what, error, extra, field=field, value=value) from error
