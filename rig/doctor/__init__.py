"""What ``rig doctor`` opens, tries and says. ``command`` is where it begins."""
