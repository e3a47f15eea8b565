"""What goes wrong, and what there is not."""

from __future__ import annotations

from typing import NoReturn

from outbid._errors import OutbidError


class TuneError(OutbidError):
    """An experiment, or one of its trials, went wrong."""


class BadArgumentError(TuneError, ValueError, TypeError):
    """An argument of an experiment or a scheduler cannot be used."""


class UnknownTrainableError(TuneError, ValueError):
    """A trainable is named that was not registered."""


class UnsupportedError(OutbidError, NotImplementedError):
    """A part of Ray Tune that Outbid does not have; the message says what to use."""


class UnknownNameError(UnsupportedError, ValueError):
    """A scheduler or search algorithm is named that is not known."""


class AbsentNameError(UnsupportedError, ImportError):
    """A module or name of Ray's that Outbid does not have; the message says what to use. It is an ImportError too."""


class NoSuchNameError(UnsupportedError, AttributeError):
    """An attribute that Ray's object has and Outbid's has not; `hasattr` says so too."""


def unsupported(what: str, use: str) -> NoReturn:
    """Raise the error for something that Outbid does not have."""
    raise UnsupportedError(f"outbid.tune has no {what}: {use}")
