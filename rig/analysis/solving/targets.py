"""Define the names of target costs, and their order of preference."""

from __future__ import annotations

from collections.abc import Iterable

OFFICIAL, SPECIFIED, BEST_KNOWN = "official", "specified", "best_known"


def by_preference(names: Iterable[str]) -> list[str]:
    """Return each name once: first the official, specified and best known targets, then the others.

    The others are in the order in which they were given.
    """
    given, known = dict.fromkeys(names), (OFFICIAL, SPECIFIED, BEST_KNOWN)
    return [name for name in known if name in given] + [name for name in given if name not in known]
