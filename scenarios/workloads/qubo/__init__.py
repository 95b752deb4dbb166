"""Your own binary quadratic problems, from files in common formats."""
