"""Programs that are shipped to another interpreter as source. Nothing here imports them."""
