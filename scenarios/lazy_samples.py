"""A sequence that makes each sample when it is accessed, so that a large workload does not fill the memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Generic, TypeVar, overload

from rig.types import Sample

T = TypeVar("T")


@dataclass(frozen=True, slots=True, eq=False)
class Lazy(Sequence[Sample], Generic[T]):
    """A sequence with one sample for each item; ``make`` returns the sample of an item."""

    items: Sequence[T]
    make: Callable[[T], Sample]

    def __len__(self) -> int:
        return len(self.items)

    @overload
    def __getitem__(self, index: int) -> Sample: ...
    @overload
    def __getitem__(self, index: slice) -> Lazy[T]: ...
    def __getitem__(self, index: int | slice) -> Sample | Lazy[T]:
        if isinstance(index, slice):
            return replace(self, items=self.items[index])
        return self.make(self.items[index])
