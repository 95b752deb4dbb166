"""Programs that are shipped to another interpreter as source; nothing here imports them."""
