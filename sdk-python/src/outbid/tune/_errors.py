"""Errors of outbid.tune."""

from __future__ import annotations

from typing import NoReturn

from outbid._core.errors import OutbidError


class TuneError(OutbidError):
    """An experiment or one of its trials failed."""


class BadArgumentError(TuneError, ValueError, TypeError):
    """An argument of an experiment or a scheduler is invalid."""


class UnknownTrainableError(TuneError, ValueError):
    """A trainable's name is not registered."""


class UnsupportedError(OutbidError, NotImplementedError):
    """A part of Ray Tune that Outbid does not have; the message names an alternative."""


class UnknownNameError(UnsupportedError, ValueError):
    """The name of a scheduler or search algorithm is unknown."""


class AbsentNameError(UnsupportedError, ImportError):
    """A module or name of Ray's that Outbid does not have; the message names an alternative. Also an ImportError."""


class NoSuchNameError(UnsupportedError, AttributeError):
    """An attribute that Ray's object has and Outbid's does not have; also an AttributeError, for `hasattr`."""


def unsupported(what: str, use: str) -> NoReturn:
    """Raise UnsupportedError for a feature that Outbid does not have."""
    raise UnsupportedError(f"outbid.tune has no {what}: {use}")
