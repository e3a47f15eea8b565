"""The worker's side: the process of a trial and the interface for its training code."""
