"""Acoustic scene classification: recordings or synthetic scenes, cut into samples and frames."""
