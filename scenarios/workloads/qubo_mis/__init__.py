"""Maximum independent sets of random graphs as QUBO problems."""
