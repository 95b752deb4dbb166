"""Bytes on a disk: bounded reads, whole writes, a disk that is full, and text decoded into records."""
