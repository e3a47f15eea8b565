"""Outbid on a real cluster of Ray's: one for all that is here."""
