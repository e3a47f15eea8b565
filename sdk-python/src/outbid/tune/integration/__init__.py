"""Callbacks of training libraries that report to the trial."""
