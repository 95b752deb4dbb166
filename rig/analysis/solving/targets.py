"""The names of target costs, and which of several targets a solve is to come close to."""

from __future__ import annotations

from collections.abc import Iterable

OFFICIAL, SPECIFIED, BEST_KNOWN = "official", "specified", "best_known"


def by_preference(names: Iterable[str]) -> list[str]:
    """The names once each: official, specified and best known targets first, then the others in the order given."""
    return sorted(dict.fromkeys(names), key=_rank)


def _rank(name: str) -> int:
    known = (OFFICIAL, SPECIFIED, BEST_KNOWN)
    return known.index(name) if name in known else len(known)
