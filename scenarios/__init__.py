"""Scenarios issue samples to a device: one generator of steps for each scenario, and named sets of rules.

In: a workload and rules. Out: steps. Of the packages that are shipped, only ``drivers.devices`` imports this one: the
QUBO problem for its solvers, and NE15-MNIST for its spiking networks.
"""
