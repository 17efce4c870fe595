"""Runs of a method on a problem, compiled."""
