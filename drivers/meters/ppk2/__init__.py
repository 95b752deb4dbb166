"""Nordic Power Profiler Kit II over its serial line."""
