"""Functions that the workers of several software stacks share. This module is shipped as source."""

from __future__ import annotations

import platform
from collections.abc import Sequence
from importlib import metadata
from typing import Any

import numpy as np


class Refusal(Exception):
    """An exception that the rig turns into one of its own errors."""

    def __init__(self, kind: str, message: str, remedy: str, field: str = "", value: Any = None) -> None:
        super().__init__(message)
        self.rig = {"kind": kind, "message": message, "remedy": remedy, "field": field, "value": value}


def unimportable(stack: str, error: Exception, remedy: str) -> Refusal:
    """Return the exception for an interpreter that cannot import a software stack."""
    what = f"Python {platform.python_version()} of the worker cannot import {stack}: {error}"
    return Refusal("MissingExtraError", what, remedy, "interpreter")


def decoded(array: dict[str, Any]) -> Any:
    """Return the array that came over the link as a dictionary."""
    return np.frombuffer(array["data"], array["dtype"]).reshape(array["shape"])


def versions(packages: Sequence[str]) -> dict[str, str]:
    """Return the version of each package, or "not installed"."""
    found = {}
    for name in packages:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            found[name] = "not installed"
    return found
