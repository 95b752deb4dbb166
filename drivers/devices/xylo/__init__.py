"""SynSense Xylo Audio 2 and 3: the chip on its board, and a simulated Audio 2. Their networks are in `networks/`.

In: audio or events. Out: labels, spans and activity counters. Opened through the entry point ``xylo``.
"""
