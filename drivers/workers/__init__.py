"""Programs that are sent to another interpreter as source; nothing here imports them."""
