"""Sources that are shipped to another interpreter. Nothing here is imported by the rig."""
