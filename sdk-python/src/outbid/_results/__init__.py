"""The results of a sweep: its trials, reports, forks and soups, and the importance of parameters."""
