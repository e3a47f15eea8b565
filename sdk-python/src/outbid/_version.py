"""The version of the SDK, as Python writes it. `make gen` writes this file from VERSION."""

__version__ = "1.0.0rc1"
