"""The session between a training process and its worker.

Each message is sent over a Unix socket with its length as a prefix. One thread reads the worker's messages into
`inbox`, and one sends queued reports, so reporting does not wait for the worker. At the end of a trial, and before
waiting for the worker, the training code's thread sends its message and the queued reports itself.
"""

from __future__ import annotations

import collections
import contextlib
import os
import queue
import socket
import sys
import threading
from typing import Final, Protocol

from outbid._training.gang import FromRank
from outbid._version import __version__
from outbid.v1 import event_pb2, node_pb2, session_pb2

UNSENT_REPORTS: Final = 10_000
"""The maximum number of unsent reports, above which `report` blocks."""

BATCH: Final = 1_000
"""The maximum number of reports in one message."""

WORKER_GONE: Final = 3
"""Exit code of a process whose worker has disappeared."""

_LENGTH: Final = 4  # bytes of the length prefix
_READ = _WRITE = 1 << 16


class Terminate:
    """Put into the inbox when a signal tells the process to save and end."""


class Poke:
    """Put into the inbox to make the main thread handle signals."""


Incoming = session_pb2.AttachResponse | Terminate | Poke | FromRank
_Item = session_pb2.AttachRequest | tuple[node_pb2.ForkRef, event_pb2.Report]


class WorkerSession(Protocol):
    """The part of a session that a trial uses."""

    inbox: queue.SimpleQueue[Incoming]

    def send(self, message: session_pb2.AttachRequest) -> None:
        """Send a message after all earlier ones."""

    def report(self, fork: node_pb2.ForkRef, report: event_pb2.Report) -> None:
        """Queue a report."""


class Session:
    """The session of one training process with its worker."""

    def __init__(self, path: str, secret: str) -> None:
        self.inbox: queue.SimpleQueue[Incoming] = queue.SimpleQueue()
        self._outbox: collections.deque[_Item] = collections.deque()
        self._room = threading.Semaphore(UNSENT_REPORTS)
        self._news: queue.SimpleQueue[bool] = queue.SimpleQueue()  # True wakes the sender, False ends it
        self._sending = threading.Lock()
        self._closing = self._forked = False
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            self._socket.connect(path)
        except OSError as error:
            abandon(str(error))
        self.send(session_pb2.AttachRequest(hello=hello(secret)))
        os.register_at_fork(after_in_child=self._leave_to_parent)
        self._reader = threading.Thread(target=self._read, name="outbid-session", daemon=True)
        self._reader.start()
        threading.Thread(target=self._send_reports, name="outbid-reports", daemon=True).start()

    def send(self, message: session_pb2.AttachRequest) -> None:
        """Send a message after all queued ones."""
        if self._forked:
            return
        self._outbox.append(message)
        self._flush()

    def report(self, fork: node_pb2.ForkRef, report: event_pb2.Report) -> None:
        """Queue a report; blocks while UNSENT_REPORTS are queued."""
        if self._forked:
            return
        self._room.acquire()
        self._outbox.append((fork, report))
        if self._news.empty():
            self._news.put(True)

    def close(self) -> None:
        """Send queued messages, end the stream and wait at most 2 s until the worker has ended it."""
        self._closing = True
        self._flush()
        self._news.put(False)
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_WR)
        self._reader.join(timeout=2)
        self._socket.close()

    def _send_reports(self) -> None:
        while self._news.get():
            self._flush()

    def _flush(self) -> None:
        """Send all queued messages. If the worker has disappeared, the reading thread notices too."""
        with self._sending, contextlib.suppress(OSError):
            while self._outbox:
                frames, size, reports = [], 0, 0
                while self._outbox and size < _WRITE:  # the end of a trial is sent with its last report
                    message, found = self._gather()
                    body = message.SerializeToString()
                    frames += [len(body).to_bytes(_LENGTH, "big"), body]
                    size, reports = size + len(body), reports + found
                self._socket.sendall(b"".join(frames))
                if reports:
                    self._room.release(reports)

    def _gather(self) -> tuple[session_pb2.AttachRequest, int]:
        """Take the next message from the queue.

        Consecutive reports of one fork become one message; returns their number.
        """
        item = self._outbox.popleft()
        if isinstance(item, session_pb2.AttachRequest):
            return item, 0
        fork, report = item
        batch = session_pb2.AttachRequest()
        batch.reports.fork.CopyFrom(fork)
        found = [report]
        while len(found) < BATCH and self._outbox:
            item = self._outbox[0]
            if not isinstance(item, tuple) or item[0] is not fork:
                break
            found.append(item[1])
            self._outbox.popleft()
        batch.reports.reports.extend(found)
        return batch, len(found)

    def _read(self) -> None:
        reason = "the worker ended the stream"
        heard = bytearray()
        try:
            while data := self._socket.recv(_READ):
                heard += data
                while len(heard) >= _LENGTH:
                    end = _LENGTH + int.from_bytes(heard[:_LENGTH], "big")
                    if len(heard) < end:
                        break
                    self.inbox.put(session_pb2.AttachResponse.FromString(bytes(heard[_LENGTH:end])))
                    del heard[:end]
        except OSError as error:
            reason = str(error)
        if not self._closing:
            abandon(reason)

    def _leave_to_parent(self) -> None:
        """Close the socket in a forked child, so that its messages do not mix with its parent's.

        It must not wait for a lock, which a thread of the parent may have held during the fork.
        """
        self._forked = True
        self._socket.close()


def hello(secret: str) -> session_pb2.ProcessHello:
    """Return the message that opens a session."""
    return session_pb2.ProcessHello(session=secret, pid=os.getpid(), sdk_version=__version__)


def abandon(reason: str) -> None:
    """Exit at once, whatever the training code is doing, because the worker that manages this process has gone."""
    with contextlib.suppress(Exception):
        print(f"outbid: lost the worker ({reason}); exiting", file=sys.stderr, flush=True)
    with contextlib.suppress(Exception):
        sys.stdout.flush()
    os._exit(WORKER_GONE)
