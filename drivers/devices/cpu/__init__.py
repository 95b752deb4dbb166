"""Solvers on this computer: local search, simulated annealing, tabu."""
