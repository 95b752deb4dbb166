"""Maximum independent sets: a local search, a proof, best known targets, and separate code that checks them."""
