"""How samples are issued: one generator of steps for each scenario, and the rules of each set.

In: a workload and rules. Out: steps. Imported by nobody; ``drivers.devices`` imports the QUBO problem alone.
"""
