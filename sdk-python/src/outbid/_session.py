"""What a training process and its worker say to each other.

Each message goes with its length before it over a Unix socket. Two threads stand behind it: one reads what the worker
says into `inbox`, one sends the reports that wait. So reporting never waits for the worker; what is said at the end of
a trial, or before waiting for word, the training code's own thread sends, together with what waits.
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

from outbid._version import __version__
from outbid.v1 import event_pb2, node_pb2, session_pb2

UNSENT_REPORTS: Final = 10_000
"""So many reports may wait to be sent before `report` blocks."""

BATCH: Final = 1_000
"""So many reports go in one message."""

WORKER_GONE: Final = 3
"""Exit code of a process whose worker is gone."""

_LENGTH: Final = 4  # bytes of the length before a message
_READ = _WRITE = 1 << 16


class Terminate:
    """In the inbox: the process was told by signal to save and end."""


class Poke:
    """In the inbox: nothing but a reason to look at signals."""


Incoming = session_pb2.AttachResponse | Terminate | Poke
_Item = session_pb2.AttachRequest | tuple[node_pb2.ForkRef, event_pb2.Report]


class Link(Protocol):
    """What a trial needs of the session."""

    inbox: queue.SimpleQueue[Incoming]

    def send(self, message: session_pb2.AttachRequest) -> None:
        """Send a message after all that was said before."""

    def report(self, fork: node_pb2.ForkRef, report: event_pb2.Report) -> None:
        """Queue a report."""


class Attached(Link, Protocol):
    """A session that can be ended."""

    def close(self) -> None:
        """Send what is queued and end the session."""


class Session:
    """One attached training process."""

    def __init__(self, path: str, secret: str) -> None:
        self.inbox: queue.SimpleQueue[Incoming] = queue.SimpleQueue()
        self._outbox: collections.deque[_Item] = collections.deque()
        self._room = threading.Semaphore(UNSENT_REPORTS)
        self._news: queue.SimpleQueue[bool] = queue.SimpleQueue()  # True for the sender to go on
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
        """Send a message, after everything queued before."""
        if self._forked:
            return
        self._outbox.append(message)
        self._flush()

    def report(self, fork: node_pb2.ForkRef, report: event_pb2.Report) -> None:
        """Queue a report; blocks while UNSENT_REPORTS wait."""
        if self._forked:
            return
        self._room.acquire()
        self._outbox.append((fork, report))
        if self._news.empty():
            self._news.put(True)

    def close(self) -> None:
        """Send what is queued, end the stream and wait until the worker has ended it, 2 s at most."""
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
        """Send all that is queued. If the worker is gone the reading thread finds out too."""
        with self._sending, contextlib.suppress(OSError):
            while self._outbox:
                frames, size, reports = [], 0, 0
                while self._outbox and size < _WRITE:  # the end of a trial goes with its last report
                    message, found = self._gather()
                    body = message.SerializeToString()
                    frames += [len(body).to_bytes(_LENGTH, "big"), body]
                    size, reports = size + len(body), reports + found
                self._socket.sendall(b"".join(frames))
                if reports:
                    self._room.release(reports)

    def _gather(self) -> tuple[session_pb2.AttachRequest, int]:
        """Take the next message from the queue, waiting reports of one fork as one, and say how many they are."""
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
        """In a forked child: nothing that it says must get between what its parent says.

        Nor may it wait for a lock: a thread of the parent may have held it when the child was made.
        """
        self._forked = True
        self._socket.close()


def hello(secret: str) -> session_pb2.ProcessHello:
    """Return what opens a session."""
    return session_pb2.ProcessHello(session=secret, pid=os.getpid(), sdk_version=__version__, tells_begin=True)


def abandon(reason: str) -> None:
    """Leave at once, whatever the training code is doing: without a worker nobody owns this process."""
    with contextlib.suppress(Exception):
        print(f"outbid: lost the worker ({reason}); leaving", file=sys.stderr, flush=True)
    with contextlib.suppress(Exception):
        sys.stdout.flush()
    os._exit(WORKER_GONE)
