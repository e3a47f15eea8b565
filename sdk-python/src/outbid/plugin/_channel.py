"""The channel: a socket to the server on which frequent calls are answered in one thread, without gRPC.

The frames are described at TunerService in proto/outbid/v1/plugin.proto.
"""

from __future__ import annotations

import contextlib
import os
import socket
import struct
from collections.abc import Callable
from typing import Any

_VARIABLE = "OUTBID_PLUGIN_CHANNEL"  # the socket's file descriptor
_LENGTH = struct.Struct(">I")
_ANSWER = struct.Struct(">BI")  # the gRPC status code and the length

Answer = Callable[[bytes], tuple[int, bytes]]
"""Returns the status code and the answer to a message; the answer to an error is its text."""


def connect() -> socket.socket | None:
    """Return the socket to the server, or None if the server did not make one."""
    descriptor = os.environ.get(_VARIABLE, "")
    if not descriptor.isdigit():
        return None
    os.set_inheritable(int(descriptor), False)
    return socket.socket(fileno=int(descriptor))


def answer_all(channel: socket.socket, answer: Answer) -> None:
    """Answer one message after another until the server closes the channel."""
    with channel, channel.makefile("rb") as requests, contextlib.suppress(OSError):  # the server has ended
        while (message := _read(requests)) is not None:
            code, response = answer(message)
            channel.sendall(_ANSWER.pack(code, len(response)) + response)


def _read(requests: Any) -> bytes | None:
    """Return the next message, or None at the end."""
    length = requests.read(_LENGTH.size)
    if len(length) < _LENGTH.size:
        return None
    (size,) = _LENGTH.unpack(length)
    message: bytes = requests.read(size)
    return message if len(message) == size else None
