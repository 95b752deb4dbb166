"""Mackey-Glass: forecasting a chaotic series. Opened through the entry point ``mackey-glass``."""
