"""Intel Loihi 2 through Lava, which runs in its own interpreter.

The device takes graphs and time budgets, and returns solutions with their progress. It is opened through the entry
point ``loihi2``.
"""
