"""Pages and tables of submissions and of their audits, and the archive in which they travel."""
