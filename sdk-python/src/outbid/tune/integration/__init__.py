"""Callbacks for training libraries that report to the trial."""
