"""The same over gRPC, as workers of older versions want it.

Two threads stand behind it: one reads what the worker says into `inbox`, gRPC's own pulls what is to be sent.
The training code's thread only ever touches the two queues, so reporting never waits for the network.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator

import grpc

from outbid._session import BATCH, UNSENT_REPORTS, Incoming, abandon, hello
from outbid.v1 import event_pb2, node_pb2, session_pb2, session_pb2_grpc


class _Close:
    """In the outbox: nothing follows."""


_Item = session_pb2.AttachRequest | tuple[node_pb2.ForkRef, event_pb2.Report] | _Close


class GrpcSession:
    """One attached training process."""

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
        """Queue a message; it is sent after everything queued before."""
        self._outbox.put(message)

    def report(self, fork: node_pb2.ForkRef, report: event_pb2.Report) -> None:
        """Queue a report; blocks while UNSENT_REPORTS wait."""
        self._room.acquire()
        self._outbox.put((fork, report))

    def close(self) -> None:
        """Send what is queued, end the stream and wait until the worker has ended it, 2 s at most."""
        self._closing = True
        self._outbox.put(_Close())
        self._reader.join(timeout=2)
        self._channel.close()

    def _requests(self) -> Iterator[session_pb2.AttachRequest]:
        pending: _Item | None = None  # taken from the queue, not sent
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
            # gRPC asks for the next message once this one is on its way: flow control reaches report().
            self._room.release(len(batch.reports.reports))

    def _gather(self, fork: node_pb2.ForkRef, batch: session_pb2.AttachRequest) -> _Item | None:
        """Put the fork's waiting reports into the batch; return what was found behind them."""
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
