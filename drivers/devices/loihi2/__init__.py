"""Intel Loihi 2 through Lava, which runs in its own interpreter.

In: graphs and budgets. Out: solutions with their progress. Opened through the entry point ``loihi2``.
"""
