"""Systems under test: one folder for each family."""
