"""The parts of go-plugin's protocol besides the service: handshake, health, shutdown, and ending with the server."""

from __future__ import annotations

import contextlib
import gc
import io
import os
import signal
import socket
import sys
import tempfile
import threading
import traceback
from collections.abc import Callable, Iterator
from concurrent import futures
from typing import TYPE_CHECKING, Any, TypeVar

from outbid._core.errors import InvalidError, one_line
from outbid.plugin._bidder import Bidder, BidderSide
from outbid.plugin._channel import answer_all, connect
from outbid.plugin._tuner import PROTOCOL, Tuner, TunerSide

if TYPE_CHECKING:
    import grpc

_COOKIE = "OUTBID_PLUGIN"  # says which kind of plugin the server expects
_LIFELINE = "OUTBID_PLUGIN_LIFELINE"  # a file descriptor that closes when the server ends
_GRACE = 1.0  # seconds that running calls have when the plugin should end
_LONGEST_SOCKET = 100  # bytes; the system's limit is 108

_Request = TypeVar("_Request")
_Response = TypeVar("_Response")


def serve(plugin: Tuner | Bidder) -> None:
    """Serve a tuner or a bidder until the server ends it. A plugin's program only needs this call.

    Only a server can start such a program. Standard output is redirected to standard error, the server's log.
    """
    kind = "bidder" if isinstance(plugin, Bidder) else "tuner"
    asked = os.environ.get(_COOKIE, "").replace(
        "agent", "bidder"
    )  # as the handshake has called bidders since 1.0.0-rc.1
    if asked != kind:
        sys.exit(_not_started_by_a_server(kind, asked))
    # A terminal's Ctrl-C also reaches the server, which ends its plugins when it no longer needs them.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _Host(plugin).run()


def _not_started_by_a_server(kind: str, asked: str) -> str:
    program = " ".join(sys.argv)
    if asked:
        return f"{program} is a plugin of Outbid with a {kind}, but was started as a {asked}"
    where = "outbid serve --bidder NAME=COMMAND" if kind == "bidder" else "tuner: {plugin: {command: [...]}} of a sweep"
    return f"{program} is a plugin of Outbid, which a server must start; configure it with {where}"


@contextlib.contextmanager
def _socket_folder() -> Iterator[str]:
    """Give the folder of the socket, which is deleted at the end even if the server that made it is gone."""
    given = os.environ.get("PLUGIN_UNIX_SOCKET_DIR")
    if not given:
        with tempfile.TemporaryDirectory(prefix="outbid-") as own:
            yield own
        return
    try:
        yield given
    finally:
        with contextlib.suppress(OSError):
            os.rmdir(given)


def _then_freeze(call: Callable[..., Any]) -> Callable[..., Any]:
    """Return the call, after which garbage collections skip all present objects: modules and the experiment."""

    def frozen(request: Any) -> Any:
        response = call(request)
        gc.freeze()
        return response

    return frozen


class _Host:
    """One plugin and its gRPC server."""

    def __init__(self, plugin: Tuner | Bidder) -> None:
        import grpc

        self._grpc = grpc
        # Only one call of the plugin runs at a time; health and shutdown are answered meanwhile.
        self._calls = threading.Lock()
        self._over = threading.Event()
        unbounded = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]
        self._server = grpc.server(futures.ThreadPoolExecutor(4), options=unbounded)
        channel = None if isinstance(plugin, Bidder) else connect()
        side = BidderSide(plugin) if isinstance(plugin, Bidder) else TunerSide(plugin, channel=channel is not None)
        service = "AgentService" if isinstance(plugin, Bidder) else "TunerService"
        calls = side.calls()
        if "Configure" in calls:
            configure, takes = calls["Configure"]
            calls["Configure"] = _then_freeze(configure), takes
        self._add(f"outbid.v1.{service}", {name: self._unary(call, takes) for name, (call, takes) in calls.items()})
        if channel is not None:
            threading.Thread(target=self._answer_channel, args=[channel, *calls["Handle"]], daemon=True).start()
        self._add_own_services()

    def run(self) -> None:
        with _socket_folder() as folder:
            place = self._listen(folder)
            self._server.start()
            # go-plugin's handshake: its own version, the service's version, and the address.
            print(f"1|{PROTOCOL}|{place}|grpc", flush=True)
            # Standard output is not read after this.
            os.dup2(2, 1)
            if isinstance(sys.stdout, io.TextIOWrapper):
                sys.stdout.reconfigure(line_buffering=True)
            threading.Thread(target=self._end_with_server, daemon=True).start()
            self._over.wait()
            self._server.stop(_GRACE).wait()
        if not self._calls.acquire(timeout=_GRACE):
            # A call that does not end would keep the process alive.
            os._exit(1)

    def _listen(self, folder: str) -> str:
        path = os.path.join(folder, f"plugin{os.getpid()}")
        if os.name == "posix" and len(path.encode()) <= _LONGEST_SOCKET:
            self._server.add_insecure_port(f"unix:{path}")
            return f"unix|{path}"
        return f"tcp|127.0.0.1:{self._server.add_insecure_port('127.0.0.1:0')}"

    def _end_with_server(self) -> None:
        descriptor = os.environ.get(_LIFELINE, "")
        if not descriptor.isdigit():
            return
        with os.fdopen(int(descriptor), "rb") as lifeline:
            lifeline.read()
        self._over.set()

    def _add_own_services(self) -> None:
        raw = self._grpc

        def check(request: bytes, context: grpc.ServicerContext) -> bytes:
            return b"\x08\x01"  # HealthCheckResponse{status: SERVING}

        def shutdown(request: bytes, context: grpc.ServicerContext) -> bytes:
            self._over.set()
            return b""

        def stdio(request: bytes, context: grpc.ServicerContext) -> Iterator[bytes]:
            # Output goes to standard error, which the server reads itself. The last output before a crash would not
            # arrive through this stream.
            return iter(())

        self._add("grpc.health.v1.Health", {"Check": raw.unary_unary_rpc_method_handler(check)})
        self._add("plugin.GRPCController", {"Shutdown": raw.unary_unary_rpc_method_handler(shutdown)})
        self._add("plugin.GRPCStdio", {"StreamStdio": raw.unary_stream_rpc_method_handler(stdio)})

    def _add(self, service: str, handlers: dict[str, Any]) -> None:
        self._server.add_generic_rpc_handlers((self._grpc.method_handlers_generic_handler(service, handlers),))

    def _answer_channel(self, channel: socket.socket, call: Callable[[Any], Any], request_type: Any) -> None:
        """Answer the calls that arrive on the channel."""

        def answer(message: bytes) -> tuple[int, bytes]:
            response, code, problem = self._call(call, request_type.FromString(message))
            if response is not None:
                return 0, response.SerializeToString()
            return code.value[0], problem.encode()

        answer_all(channel, answer)

    def _call(self, call: Callable[[_Request], _Response], request: _Request) -> tuple[_Response | None, Any, str]:
        """Return a call's response, or None with the status code and the text of the error."""
        codes = self._grpc.StatusCode
        try:
            with self._calls:
                return call(request), codes.OK, ""
        except InvalidError as error:
            return None, codes.INVALID_ARGUMENT, str(error)
        except Exception as error:
            traceback.print_exc()
            return None, codes.INTERNAL, one_line(error)

    def _unary(self, call: Callable[[_Request], _Response], request_type: Any) -> Any:
        def answer(request: _Request, context: grpc.ServicerContext) -> _Response:
            response, code, problem = self._call(call, request)
            if response is None:
                context.abort(code, problem)
                raise AssertionError("abort raises")
            return response

        return self._grpc.unary_unary_rpc_method_handler(
            answer,
            request_deserializer=request_type.FromString,
            response_serializer=lambda message: message.SerializeToString(),
        )
