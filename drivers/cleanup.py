"""Release instruments when something goes wrong."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any


@contextmanager
def released_on_error(release: Callable[[], None]) -> Iterator[None]:
    """Call ``release`` when the block raises."""
    try:
        yield
    except BaseException:
        release()
        raise


def quietly(call: Callable[..., Any], *arguments: Any) -> None:
    """Call ``call`` and ignore its failure, which no longer matters."""
    with suppress(Exception):
        call(*arguments)
