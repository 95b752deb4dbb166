"""Proofs that an independent set is a largest one, for the proven rows in the table of best known targets."""
