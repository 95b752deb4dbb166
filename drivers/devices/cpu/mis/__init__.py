"""Maximum independent sets: a local search, and the command that computes, proves and verifies target costs."""
