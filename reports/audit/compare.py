"""Claims beside plain figures: how far they lie apart, and how far they may."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from reports.audit.figures import Figures
from reports.audit.power import SHARP
from reports.audit.subject import Claim


@dataclass(frozen=True)
class Compared:
    """One claim beside the plain figure. ``allowed`` is how far apart they may lie, in the unit of both."""

    scope: str
    key: str
    unit: str
    claimed: float
    plain: float
    bound: float
    allowed: float
    method: str
    why: str

    @property
    def ok(self) -> bool:
        """Whether they agree; what is no number never does."""
        return bool(abs(self.claimed - self.plain) <= self.allowed)

    @property
    def said(self) -> str:
        """In one line."""
        plain = f"{self.plain:.6g} +- {self.allowed:.2g} {self.unit}"
        return f"{self.scope}: {self.key} is {self.claimed:.6g}, derived {plain}"

    @property
    def sharp(self) -> bool:
        """Whether the plain method alone decides, whatever interval the claim has."""
        return bool(self.allowed == self.bound)


def compared(scope: str, claims: Mapping[str, Claim], plain: Figures) -> list[Compared]:
    """Each claim that the auditor can derive, beside its plain figure.

    Where the plain method is sharper than 0.2 %, it decides alone; else the interval of the claim is added.
    """
    found = []
    for key, claim in claims.items():
        if (own := plain.get(key)) is not None:
            size = abs(own.value)
            sharp = own.bound <= SHARP * size
            allowed, why = (own.bound, "") if sharp else (own.bound + claim.half_width + 4e-16 * size, INTERVAL)
            pair = (claim.value, own.value, own.bound, allowed)
            found.append(Compared(scope, key, claim.unit, *pair, own.method, own.why + why))
    return found


INTERVAL = "; and the interval of the claim"
