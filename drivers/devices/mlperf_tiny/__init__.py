"""Boards that speak the MLPerf Tiny protocol over a serial line.

In: samples as the bytes of a model's input. Out: scores and spans. Opened through the entry point ``mlperf-tiny``.
"""
