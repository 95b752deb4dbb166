"""What is streamed: one folder for each workload."""
