"""How samples are issued: one generator of steps for each scenario, and the rules of each set."""
