"""SynSense Xylo Audio 2: the simulated chip with its encoder, network file and declared power.

In: audio samples. Out: labels, spans and activity counters. Opened through the entry point ``xylo``.
"""
