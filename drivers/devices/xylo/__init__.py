"""SynSense Xylo Audio 2 and 3: the chip on its board, and a simulated Audio 2. Their networks are in `networks/`.

The device takes audio or events, and returns labels, spans and activity counters. It is opened through the entry point
``xylo``.
"""
