"""One's own binary quadratic problems, from files in the formats that such problems come in."""
