"""Boards that print readings as lines of text."""
