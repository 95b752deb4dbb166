"""The words of a verdict, the same in every output."""

from __future__ import annotations


def verdict_words(valid: bool, *, power_refused: bool = False) -> str:
    """Return VALID or INVALID, or for which figures a result is valid."""
    if not valid:
        return "INVALID"
    return "VALID for times; power refused" if power_refused else "VALID"
