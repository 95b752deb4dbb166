"""Maximum independent sets: search, proofs, certificates and the table of best known costs."""
