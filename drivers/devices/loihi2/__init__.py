"""Intel Loihi 2 through Lava, which runs in an interpreter of its own."""
