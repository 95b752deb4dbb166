"""The command line itself: which command runs, and the completion of words."""
