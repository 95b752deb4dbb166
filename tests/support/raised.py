"""The error of a call that must fail, a function that fails, and short names of two types of pytest."""

from collections.abc import Callable
from typing import Any, TypeVar

import pytest

E = TypeVar("E", bound=BaseException)
Patch = pytest.MonkeyPatch
Capture = pytest.CaptureFixture[str]


def raised(kind: type[E], call: Callable[..., object], /, *args: Any, says: Any = None, **options: Any) -> E:
    """Return the error of this kind that the call raises; its text must match ``says``, if given."""
    with pytest.raises(kind, match=says) as caught:
        call(*args, **options)
    return caught.value


def raising(error: BaseException) -> Callable[..., Any]:
    """Return a function that raises this error, whatever its arguments are."""

    def fail(*_: object, **__: object) -> None:
        raise error

    return fail
