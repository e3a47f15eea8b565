"""Outbid on a real Ray cluster, which all tests here share."""
