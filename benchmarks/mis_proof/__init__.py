"""Prove that an independent set of a graph is a largest one, for the proven rows in the table of best known targets."""
