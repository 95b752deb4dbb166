"""Keyword few-shot class-incremental learning (NeuroBench). Opened through the entry point ``mswc-fscil``."""
