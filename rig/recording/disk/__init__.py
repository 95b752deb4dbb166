"""Read files with a size limit, write whole files, reserve disk space, and decode text into records."""
