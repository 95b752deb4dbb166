"""How far a claimed figure may be from the auditor's own, relative to it; ``evidence.compared`` applies it."""

EXACT = 1e-9
"""The relative bound of figures that are counts, or differences of stamps of one clock."""
STEADY = 1.2e-3
"""The relative bound of the plain methods of power: edges, filters, and clocks or levels that are not quite linear."""
SHARP = 2e-3
"""Up to this relative bound, the plain figure alone decides; otherwise the claim's interval is added to the bound."""
