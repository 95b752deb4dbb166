"""Proofs that an independent set is a largest one: what the table of best known targets calls proven."""
