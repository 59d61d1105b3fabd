"""The real-time loop tried out without a robot: against a simulator in another process and in wall-clock time."""
