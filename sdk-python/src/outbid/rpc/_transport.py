"""Transport: one gRPC channel to the server, with the SDK's errors, and retries while a server restarts."""

from __future__ import annotations

import time
import urllib.parse
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from outbid._core import errors
from outbid._core.trace_context import trace_headers
from outbid.rpc import _signin
from outbid.rpc._uninterruptible import Idle, Stream, aside

if TYPE_CHECKING:
    import grpc

T = TypeVar("T")

PATIENCE = 60.0
"""Seconds for which a server that was reached before may be unavailable."""

_CALL_SECONDS = 60.0
_OPTIONS: list[tuple[str, Any]] = [
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_send_message_length", -1),
    ("grpc.keepalive_time_ms", 20_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.initial_reconnect_backoff_ms", 100),
    # Despite its name this limits the time for making a connection. On a busy machine the server's greeting is late.
    ("grpc.min_reconnect_backoff_ms", 10_000),
    ("grpc.max_reconnect_backoff_ms", 1_000),
]

_ERRORS: dict[str, type[errors.OutbidError]] = {
    "INVALID_ARGUMENT": errors.InvalidError,
    "OUT_OF_RANGE": errors.InvalidError,
    "NOT_FOUND": errors.NotFoundError,
    "ALREADY_EXISTS": errors.ConflictError,
    "FAILED_PRECONDITION": errors.ConflictError,
    "ABORTED": errors.ConflictError,
    "UNAVAILABLE": errors.UnavailableError,
    "UNAUTHENTICATED": errors.UnauthenticatedError,
    "PERMISSION_DENIED": errors.UnauthenticatedError,
}


class Address(Protocol):
    """The location of a server. It is queried for every connection, because it may change when the server restarts."""

    def url(self) -> str:
        """Return the URL; may start the server."""


class FixedAddress:
    """The address of a server given by its URL."""

    def __init__(self, url: str) -> None:
        self._url = url

    def url(self) -> str:
        """Return the URL."""
        return self._url


class Transport:
    """A connection to the server at an address."""

    def __init__(self, address: Address, token: str | None, ca_file: str | None) -> None:
        self._address = address
        self._token = token
        self._sign_in: _signin.SignIn | None = None
        self._ca_file = ca_file
        self._channel: grpc.Channel | None = None
        self._url = ""
        self._reached = False
        self._closed = False
        self._dial()

    @property
    def url(self) -> str:
        """The server's URL."""
        return self._url

    @property
    def local(self) -> bool:
        """Whether the server is on this machine."""
        return _parse(self._url)[1].rpartition(":")[0] in ("127.0.0.1", "localhost", "[::1]")

    def _metadata(self) -> list[tuple[str, str]]:
        """Return the metadata of a call: the token, or that of `outbid login` if none was given."""
        token = self._token or (self._sign_in.token() if self._sign_in else "")
        return [("authorization", f"Bearer {token}")] if token else []

    def close(self) -> None:
        """Close the connection, for good."""
        self._closed = True
        self._drop()

    def _drop(self) -> None:
        channel, self._channel = self._channel, None
        if channel is not None:
            aside(channel.close)

    def call(self, method: Callable[[Any], Any], request: Any, kind: type[T]) -> T:
        """Make a call: `method` selects it from the stub, `kind` is the type of the answer.

        If the server rejects it as too early and the time to retry is near, it is retried then.
        """
        waiting = Patience()
        trace = trace_headers()  # another thread would not know the current span
        while True:
            try:
                answer = aside(
                    lambda: method(self._stub)(request, timeout=_CALL_SECONDS, metadata=self._metadata() + trace),
                    self._explain,
                )
            except errors.UnavailableError as error:
                self.recover(error, waiting)
                continue
            except errors.LimitError as error:
                if error.retry_after is None or not waiting.more(error.retry_after):
                    raise error from None
                continue
            self._reached = True
            if not isinstance(answer, kind):
                raise TypeError(f"expected {kind.__name__}, got {type(answer).__name__}")
            return answer

    def upload(self, method: Callable[[Any], Any], pieces: Callable[[], Iterable[Any]], kind: type[T]) -> T:
        """Make a call with a stream of requests; `pieces` creates the stream again for each retry."""
        return self.call(lambda stub: lambda _, **kw: method(stub)(iter(pieces()), **kw), None, kind)

    def stream(
        self,
        method: Callable[[Any], Any],
        request: Any,
        kind: type[T],
        *,
        timeout: float | None = None,
        started: Callable[[Any], None] | None = None,
        idle: Idle | None = None,
    ) -> Iterator[T]:
        """Make a call with a stream of answers. It is not retried: see `recover`."""
        stub = self._stub
        call: Stream[T] = Stream(
            lambda: method(stub)(request, timeout=timeout, metadata=self._metadata()), self._explain, idle
        )
        if started is not None:
            started(call)
        for answer in call:
            self._reached = True
            yield answer

    def recover(self, error: Exception, waiting: Patience) -> None:
        """Wait before a failed call is repeated, or raise its error.

        It only waits for a server that was reached before, and not longer than `waiting` allows.
        """
        lasting = not isinstance(error, errors.UnavailableError) or self._closed or not self._reached
        if lasting or not waiting.more():
            raise error from None
        self._dial()

    def _explain(self, error: Exception) -> Exception:
        """Convert the error of a failed call to an SDK exception. Other errors are returned unchanged."""
        import grpc

        if isinstance(error, ValueError) and "closed channel" in str(error):  # another thread closed it
            return errors.UnavailableError(f"the connection to the server at {self._url} was closed")
        if not isinstance(error, grpc.RpcError):
            return error
        code, details = error.code().name, (error.details() or "").strip()
        if code == "UNAVAILABLE":
            return errors.UnavailableError(
                f"cannot reach the server at {self._url}: {details or 'no answer'}. "
                "Is it running? `outbid doctor` checks the installation"
            )
        if code == "DEADLINE_EXCEEDED":
            return TimeoutError(f"the server at {self._url} did not answer in time")
        if code == "RESOURCE_EXHAUSTED":
            return errors.LimitError(details or code, _retry_after(error))
        if code in ("UNAUTHENTICATED", "PERMISSION_DENIED"):
            details += "; give a token with ob.connect(url, token=...) or OUTBID_TOKEN, or run `outbid login`"
        return _ERRORS.get(code, errors.ServerError)(details or code)

    def _dial(self) -> None:
        """Connect to the server's current address."""
        url = self._address.url()  # first, because a server that this starts needs time while modules are imported
        import grpc

        from outbid.v1 import service_pb2_grpc

        if self._channel is not None and url == self._url:
            return  # gRPC reconnects by itself
        self._drop()
        self._url = url
        self._sign_in = None if self._token else _signin.find(url)
        tls, target = _parse(url)
        options = list(_OPTIONS)
        if self.local:
            options.append(("grpc.enable_http_proxy", 0))
        if tls:
            roots = Path(self._ca_file).read_bytes() if self._ca_file else None
            self._channel = grpc.secure_channel(target, grpc.ssl_channel_credentials(roots), options)
        else:
            self._channel = grpc.insecure_channel(target, options)
        self._stub: Any = service_pb2_grpc.OutbidServiceStub(self._channel)


class Patience:
    """Waits for increasing times between the attempts of a call, for at most `seconds` in total."""

    def __init__(self, seconds: float = PATIENCE) -> None:
        self._end = time.monotonic() + seconds
        self._pause = 0.1

    def more(self, at_least: float = 0.0) -> bool:
        """Wait. Returns False if the time is over or would be."""
        if time.monotonic() + at_least >= self._end:
            return False
        time.sleep(max(self._pause, at_least))
        self._pause = min(1.6 * self._pause, 1.0)
        return True


def _retry_after(error: Any) -> float | None:
    """Return the seconds after which a call may be retried; None if the server does not say."""
    said = dict(error.trailing_metadata() or ())
    return float(said["retry-after-ms"]) / 1000 if "retry-after-ms" in said else None


def _parse(url: str) -> tuple[bool, str]:
    """Return whether a URL requires TLS, and its host:port."""
    if "://" not in url:
        url = "http://" + url
    ports = {"http": 80, "grpc": 80, "https": 443, "grpcs": 443}
    try:
        parts = urllib.parse.urlsplit(url)
        port = parts.port
    except ValueError:  # an invalid port, or a missing bracket
        parts, port = urllib.parse.urlsplit(""), -1
    if parts.scheme not in ports or not parts.hostname or port == -1 or parts.path not in ("", "/"):
        raise ValueError(
            f"{url!r} is not a server's URL: write http://host:port, or https://host:port for TLS, "
            'such as "http://127.0.0.1:7070"'
        )
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    return parts.scheme in ("https", "grpcs"), f"{host}:{port or ports[parts.scheme]}"
