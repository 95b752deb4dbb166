"""numba's compiler, kept on disk where there is a place to keep it. Imports numba: import this file when opening."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numba import njit


def compiled(function: Callable[..., Any]) -> Any:
    """The function as machine code that leaves the interpreter's lock alone, compiled at its first call.

    A later process loads it from beside the source, or from the user's cache where that cannot be written.
    """
    try:
        return njit(function, nogil=True, cache=True)
    except RuntimeError:  # neither place can be written: compile in each process
        return njit(function, nogil=True)
