"""The training process's session over gRPC, for workers of older versions.

One thread reads the worker's messages into `inbox`; gRPC's thread pulls messages to send. The training code's thread
only uses these two queues, so reporting does not wait for the network.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator

import grpc

from outbid._training.session import BATCH, UNSENT_REPORTS, Incoming, abandon, hello
from outbid.v1 import event_pb2, node_pb2, session_pb2, session_pb2_grpc


class _Close:
    """Marks the end of the outbox."""


_Item = session_pb2.AttachRequest | tuple[node_pb2.ForkRef, event_pb2.Report] | _Close


class GrpcSession:
    """The session of one training process with its worker."""

    def __init__(self, socket: str, secret: str) -> None:
        self.inbox: queue.SimpleQueue[Incoming] = queue.SimpleQueue()
        self._outbox: queue.SimpleQueue[_Item] = queue.SimpleQueue()
        self._room = threading.Semaphore(UNSENT_REPORTS)
        self._closing = False
        target = socket if socket.startswith("unix:") else f"unix:{socket}"
        self._channel = grpc.insecure_channel(
            target,
            options=[
                ("grpc.max_receive_message_length", -1),
                ("grpc.max_send_message_length", -1),
                ("grpc.enable_retries", 0),
                ("grpc.enable_http_proxy", 0),
                ("grpc.default_authority", "localhost"),
            ],
        )
        self._outbox.put(session_pb2.AttachRequest(hello=hello(secret)))
        self._call = session_pb2_grpc.SessionServiceStub(self._channel).Attach(self._requests())
        self._reader = threading.Thread(target=self._read, name="outbid-session", daemon=True)
        self._reader.start()

    def send(self, message: session_pb2.AttachRequest) -> None:
        """Queue a message to send after all queued ones."""
        self._outbox.put(message)

    def report(self, fork: node_pb2.ForkRef, report: event_pb2.Report) -> None:
        """Queue a report; blocks while UNSENT_REPORTS are queued."""
        self._room.acquire()
        self._outbox.put((fork, report))

    def close(self) -> None:
        """Send queued messages, end the stream and wait at most 2 s until the worker has ended it."""
        self._closing = True
        self._outbox.put(_Close())
        self._reader.join(timeout=2)
        self._channel.close()

    def _requests(self) -> Iterator[session_pb2.AttachRequest]:
        pending: _Item | None = None  # taken from the queue but not sent
        while True:
            item = self._outbox.get() if pending is None else pending
            pending = None
            if isinstance(item, _Close):
                return
            if isinstance(item, session_pb2.AttachRequest):
                yield item
                continue
            fork, report = item
            batch = session_pb2.AttachRequest()
            batch.reports.fork.CopyFrom(fork)
            batch.reports.reports.append(report)
            pending = self._gather(fork, batch)
            yield batch
            # gRPC pulls the next message when this one is being sent, so its flow control reaches report().
            self._room.release(len(batch.reports.reports))

    def _gather(self, fork: node_pb2.ForkRef, batch: session_pb2.AttachRequest) -> _Item | None:
        """Add the fork's queued reports to the batch; returns the first other item."""
        while len(batch.reports.reports) < BATCH:
            try:
                item = self._outbox.get_nowait()
            except queue.Empty:
                return None
            if not isinstance(item, tuple) or item[0] is not fork:
                return item
            batch.reports.reports.append(item[1])
        return None

    def _read(self) -> None:
        reason = "the worker ended the stream"
        try:
            for response in self._call:
                self.inbox.put(response)
        except grpc.RpcError as error:
            reason = f"{error.code().name}: {error.details()}"
        if not self._closing:
            abandon(reason)
