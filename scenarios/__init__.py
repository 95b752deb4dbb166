"""Scenarios issue samples to a device: one generator of steps for each scenario, and named sets of rules.

In: a workload and rules. Out: steps. No package imports this one, except that
``drivers.devices`` imports the QUBO problem.
"""
