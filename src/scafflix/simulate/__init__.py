"""Algorithm 1, compiled: all clients and runs at once, or a cohort at a time."""
