"""The tables, pages and pictures of sweeps, and of networks in both tracks."""
