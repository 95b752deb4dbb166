"""Programs whose source is sent to another Python interpreter; the rig never imports them."""
