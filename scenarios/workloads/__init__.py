"""Workloads, whose samples are streamed: one folder for each."""
