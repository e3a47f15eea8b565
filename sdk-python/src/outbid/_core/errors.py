"""The exceptions of the SDK, which have a common base class."""

from __future__ import annotations


class OutbidError(Exception):
    """Base class of every error that Outbid raises."""


class InvalidError(OutbidError, ValueError):
    """The server refused an invalid request; the message names the field."""


class NotFoundError(OutbidError, LookupError):
    """The sweep, trial or checkpoint does not exist."""


class ConflictError(OutbidError):
    """The request does not fit the state of the sweep, such as extending one that was never submitted."""


class UnavailableError(OutbidError, ConnectionError):
    """The server cannot be reached."""


class UnauthenticatedError(OutbidError, PermissionError):
    """The token is missing or wrong."""


class LimitError(OutbidError):
    """The tenant has reached a limit. The message names the limit, and `outbid tenant show` shows all limits.

    `retry_after` is the number of seconds after which to try again; None if waiting does not help.
    """

    def __init__(self, message: str, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.retry_after = retry_after

    def __reduce__(self) -> tuple[type[LimitError], tuple[str, float | None]]:
        return type(self), (str(self), self.retry_after)


class ServerError(OutbidError):
    """The server failed at something that should work; see its log."""


class SweepFailedError(OutbidError):
    """The sweep failed. `sweep_id` is its id, `reason` is the server's reason in one line."""

    def __init__(self, sweep_id: str, reason: str) -> None:
        super().__init__(f"sweep {sweep_id} failed: {reason}")
        self.sweep_id = sweep_id
        self.reason = reason

    def __reduce__(self) -> tuple[type[SweepFailedError], tuple[str, str]]:
        return type(self), (self.sweep_id, self.reason)  # so that it can be pickled


class TrialError(OutbidError):
    """A trial raised an exception that cannot be recreated here, because its class or its contents are not available.

    `type_name` is the name of the exception's class, `message` its text, `traceback` the traceback in the trial.
    """

    def __init__(self, type_name: str, message: str, traceback: str) -> None:
        super().__init__(f"{type_name}: {message}" if message else type_name)
        self.type_name = type_name
        self.message = message
        self.traceback = traceback

    def __reduce__(self) -> tuple[type[TrialError], tuple[str, str, str]]:
        return type(self), (self.type_name, self.message, self.traceback)


class NoResultError(OutbidError, LookupError):
    """No trial has reported the sweep's metric yet, so a best trial does not exist."""


class MissingExtraError(OutbidError, ImportError):
    """A feature needs a package from an extra; the message says how to install it."""


class FunctionError(OutbidError, TypeError):
    """The training function cannot be sent to workers: it cannot be pickled, or is too large."""


class CheckpointError(OutbidError):
    """A checkpoint cannot be read or written."""


class UntrustedError(OutbidError):
    """Loading another tenant's checkpoint would run code of that tenant, and trust was not confirmed."""


class StopTrial(BaseException):
    """Raised by `trial.report()` if the trial should stop or pause and does not use `trial.steps()`.

    Do not catch it; the runner does. It is not an `Exception`, so `except Exception` does not catch it.
    """


ENDLESS = "does not end: steps() has no end unless the tuner has max_steps, or the loop breaks"
LATE_REPORT = "reported after its loop over steps() had ended: this does not count; report inside the loop"


def one_line(error: BaseException) -> str:
    """Return an exception as one line of valid text, such as "ValueError: no such thing"."""
    name = type(error).__name__
    try:
        text = " ".join(str(error).split())
    except Exception:
        text = "(no text: str() of it raises)"
    return as_text(f"{name}: {text}" if text else name)


def shown(value: object) -> str:
    """Return a value's repr in at most 80 characters, or its type's name if repr fails."""
    try:
        return as_text(f"{value!r:.80}")
    except Exception:
        return f"<{type(value).__name__}>"


def as_text(text: str) -> str:
    """Return text that messages may contain: invalid Unicode is escaped."""
    return text if text.isascii() else text.encode(errors="backslashreplace").decode()
