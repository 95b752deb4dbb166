"""The device ``keywords``, which learns words from a few samples: NeuroBench's two baselines in torch."""
