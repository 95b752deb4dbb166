"""Files that other programs recorded, read into an ``ImportedRun``."""
