"""Energy and power counters of NVIDIA GPUs."""
