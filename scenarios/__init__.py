"""Scenarios, which issue samples: one generator of steps for each scenario, and the rules of each set.

In: a workload and rules. Out: steps. No package imports this one, except that
``drivers.devices`` imports the QUBO problem.
"""
