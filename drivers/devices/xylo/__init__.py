"""SynSense Xylo Audio 2 and 3: the chip on its board, and the simulated Audio 2; their networks are in `networks/`.

In: audio samples, or events. Out: labels, spans and activity counters. Opened through the entry point ``xylo``.
"""
