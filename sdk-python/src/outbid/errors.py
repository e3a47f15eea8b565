"""Exceptions that Outbid raises: `except NotFoundError`. All but `StopTrial` are subclasses of `OutbidError`."""

from __future__ import annotations

from outbid import (
    CheckpointError,
    ConflictError,
    FunctionError,
    InvalidError,
    LimitError,
    MissingExtraError,
    NoResultError,
    NotFoundError,
    OutbidError,
    ServerError,
    StopTrial,
    SweepFailedError,
    TrialError,
    UnauthenticatedError,
    UnavailableError,
    UntrustedError,
)

__all__ = [
    "CheckpointError",
    "ConflictError",
    "FunctionError",
    "InvalidError",
    "LimitError",
    "MissingExtraError",
    "NoResultError",
    "NotFoundError",
    "OutbidError",
    "ServerError",
    "StopTrial",
    "SweepFailedError",
    "TrialError",
    "UnauthenticatedError",
    "UnavailableError",
    "UntrustedError",
]
