"""Scenarios issue samples to a device: one generator of steps for each scenario, and named sets of rules.

In: a workload and rules. Out: steps. Of the other shipped packages, only ``drivers.devices`` imports this one, for the
QUBO problem of its solvers and the NE15-MNIST of its spiking networks.
"""
