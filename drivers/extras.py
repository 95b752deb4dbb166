"""Packages of vendors, imported when an instrument that needs one is opened."""

from __future__ import annotations

import importlib
from typing import Any

from rig.errors import MissingExtraError


def vendor_package(module: str, package: str, extra: str, user: str, field: str = "meter") -> Any:
    """Import a module of a package that ``extra`` installs. Raises ``MissingExtraError`` naming its ``user``."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise MissingExtraError(
            f"{user} needs {package}, which is not installed",
            field=field,
            value=package,
            remedy=f"pip install 'neurorig[{extra}]'",
        ) from error
