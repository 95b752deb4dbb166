"""Binary quadratic problems and their solvers: in come models of dimod and functions, out come workloads and devices.

Drivers, workloads and the public API import it.
"""
