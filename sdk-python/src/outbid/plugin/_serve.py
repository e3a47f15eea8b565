"""What go-plugin asks of a plugin beside its service: handshake, health, shutdown, and an end with the server."""

from __future__ import annotations

import io
import os
import signal
import sys
import tempfile
import threading
import traceback
from collections.abc import Callable, Iterator
from concurrent import futures
from typing import TYPE_CHECKING, Any, TypeVar

from outbid._errors import InvalidError, one_line
from outbid.plugin._agent import Agent, AgentSide
from outbid.plugin._tuner import PROTOCOL, Tuner, TunerSide

if TYPE_CHECKING:
    import grpc

_COOKIE = "OUTBID_PLUGIN"  # says which kind of plugin the server starts
_LIFELINE = "OUTBID_PLUGIN_LIFELINE"  # a file descriptor that is closed when the server is gone
_GRACE = 1.0  # seconds that calls under way have when the plugin is to end
_LONGEST_SOCKET = 100  # bytes; the system's bound is 108

_Request = TypeVar("_Request")
_Response = TypeVar("_Response")


def serve(plugin: Tuner | Agent) -> None:
    """Serve a tuner or an agent until the server has no more use for it. This is all that a plugin's program does.

    Only a server can start such a program. Standard output then goes where standard error goes: to the server's log.
    """
    kind = "agent" if isinstance(plugin, Agent) else "tuner"
    asked = os.environ.get(_COOKIE, "")
    if asked != kind:
        sys.exit(_not_started_by_a_server(kind, asked))
    # A terminal's Ctrl-C reaches the server too, which ends its plugins when it is done with them.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _Host(plugin).run()


def _not_started_by_a_server(kind: str, asked: str) -> str:
    program = " ".join(sys.argv)
    if asked:
        return f"{program} is a plugin of Outbid with a{_n(kind)} {kind}, but was started as a{_n(asked)} {asked}"
    where = "outbid serve --agent NAME=COMMAND" if kind == "agent" else "tuner: {plugin: {command: [...]}} of a sweep"
    return f"{program} is a plugin of Outbid, which the server starts; name it in {where}"


def _n(word: str) -> str:
    return "n" if word[0] in "aeiou" else ""


class _Host:
    """One plugin and the gRPC server it is called through."""

    def __init__(self, plugin: Tuner | Agent) -> None:
        import grpc

        self._grpc = grpc
        # A plugin is called once at a time; health and shutdown are answered meanwhile.
        self._calls = threading.Lock()
        self._over = threading.Event()
        unbounded = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]
        self._server = grpc.server(futures.ThreadPoolExecutor(4), options=unbounded)
        side = AgentSide(plugin) if isinstance(plugin, Agent) else TunerSide(plugin)
        service = "AgentService" if isinstance(plugin, Agent) else "TunerService"
        calls = {name: self._unary(call, takes) for name, (call, takes) in side.calls().items()}
        self._add(f"outbid.v1.{service}", calls)
        self._add_own_services()

    def run(self) -> None:
        with tempfile.TemporaryDirectory(prefix="outbid-") as own:
            place = self._listen(os.environ.get("PLUGIN_UNIX_SOCKET_DIR") or own)
            self._server.start()
            # go-plugin's handshake: its own version, the service's version, and where to call.
            print(f"1|{PROTOCOL}|{place}|grpc", flush=True)
            # Nobody reads standard output from here on.
            os.dup2(2, 1)
            if isinstance(sys.stdout, io.TextIOWrapper):
                sys.stdout.reconfigure(line_buffering=True)
            threading.Thread(target=self._end_with_server, daemon=True).start()
            self._over.wait()
            self._server.stop(_GRACE).wait()
        if not self._calls.acquire(timeout=_GRACE):
            # A call that never ends would keep the process alive for ever.
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
            # What is written goes to standard error, which the server reads by itself: the last words before a crash
            # would not come through here.
            return iter(())

        self._add("grpc.health.v1.Health", {"Check": raw.unary_unary_rpc_method_handler(check)})
        self._add("plugin.GRPCController", {"Shutdown": raw.unary_unary_rpc_method_handler(shutdown)})
        self._add("plugin.GRPCStdio", {"StreamStdio": raw.unary_stream_rpc_method_handler(stdio)})

    def _add(self, service: str, handlers: dict[str, Any]) -> None:
        self._server.add_generic_rpc_handlers((self._grpc.method_handlers_generic_handler(service, handlers),))

    def _unary(self, call: Callable[[_Request], _Response], request_type: Any) -> Any:
        codes = self._grpc.StatusCode

        def answer(request: _Request, context: grpc.ServicerContext) -> _Response:
            try:
                with self._calls:
                    return call(request)
            except InvalidError as error:
                code, problem = codes.INVALID_ARGUMENT, str(error)
            except Exception as error:
                traceback.print_exc()
                code, problem = codes.INTERNAL, one_line(error)
            context.abort(code, problem)
            raise AssertionError("abort raises")

        return self._grpc.unary_unary_rpc_method_handler(
            answer,
            request_deserializer=request_type.FromString,
            response_serializer=lambda message: message.SerializeToString(),
        )
