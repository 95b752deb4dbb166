"""Binary quadratic problems and their solvers: models of dimod and functions become workloads and devices.

Drivers, workloads and the public API import it.
"""
