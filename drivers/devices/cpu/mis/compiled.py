"""numba's compiler, with its results on disk where possible. Imports numba: import this file when opening."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numba import njit


def compiled(function: Callable[..., Any]) -> Any:
    """Return the function as machine code that does not hold the interpreter's lock, compiled at its first call.

    A later process loads it from the source's folder, or from the user's cache if that folder cannot be written.
    """
    try:
        return njit(function, nogil=True, cache=True)
    except RuntimeError:  # neither place can be written: compile in each process
        return njit(function, nogil=True)
