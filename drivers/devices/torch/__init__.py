"""A CPU or a CUDA GPU that runs a network in torch: the conventional baseline for a chip."""
