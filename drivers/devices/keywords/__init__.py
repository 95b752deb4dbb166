"""Keywords learnt from a few samples: NeuroBench's two baselines in torch. Opened as ``keywords``."""
