"""NE15-MNIST: handwritten digits as spikes, in four encodings."""
