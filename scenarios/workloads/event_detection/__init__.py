"""Event-camera object detection (NeuroBench). Opened through the entry point ``event-detection``."""
