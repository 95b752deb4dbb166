"""Boards with the MLPerf Tiny protocol on a serial line.

The device takes samples as the bytes of a model's input, and returns scores and spans. It is opened through the entry
point ``mlperf-tiny``.
"""
