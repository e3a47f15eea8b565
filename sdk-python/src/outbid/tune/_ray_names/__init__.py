"""Modules with the names of Ray Tune's inner modules, for `tune._import_hook`."""
