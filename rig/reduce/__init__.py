"""Window energies of traces of any length: ``energies`` sums, ``command`` is ``rig reduce``."""
