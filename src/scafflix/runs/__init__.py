"""From keys to objects: running, comparing, tuning, reproducing."""
