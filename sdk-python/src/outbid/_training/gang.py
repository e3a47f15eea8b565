"""A gang: the processes that train one trial together, on one or more nodes, and do what rank 0 decides.

Rank 0 listens at a port, and the other ranks connect to it. Both sides prove that they know the gang's secret. Each
message is a JSON object with its length as a prefix. Rank 0 announces each decision, such as to do another step, and
the others wait for it, so that every rank acts on it at the same step.

If a connection ends and its rank has not said goodbye, that rank is gone. No rank can continue without it, so each
tells its worker and exits.
"""

from __future__ import annotations

import collections
import contextlib
import json
import math
import os
import queue
import socket
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from outbid.v1 import session_pb2

PORTS: Final = 8
"""How many ports from the control port on rank 0 may listen at, if another process has the first ones."""

PEER_LOST: Final = 4
"""Exit code of a process that lost another process of its gang."""

_LENGTH: Final = 4  # bytes of the length prefix
_MOST: Final = 1 << 20  # bytes of a message
_PATIENCE: Final = 5.0  # seconds that connecting and proving may take
_UNPROVEN: Final = 32  # connections to rank 0 that may be proving at the same time
_PROOF: Final = 32  # bytes of a challenge and of its answer
_JOINED: Final = b"\1"  # what a rank sends once it knows that it is connected with rank 0

Message = dict[str, Any]


@dataclass(frozen=True)
class FromRank:
    """Put into the inbox for a message of another rank."""

    rank: int
    message: Message


class Link:
    """A connection to another rank."""

    def __init__(self, connection: socket.socket) -> None:
        self._socket = connection
        self._sending = threading.Lock()

    def send(self, message: Message) -> None:
        """Send a message. If the other rank is gone, the reading thread notices."""
        body = json.dumps(message).encode()
        with self._sending, contextlib.suppress(OSError):
            self._socket.sendall(len(body).to_bytes(_LENGTH, "big") + body)

    def receive(self) -> Message | None:
        """Return the next message, or None at the end of the connection."""
        try:
            size = int.from_bytes(_exactly(self._socket, _LENGTH), "big")
            found = json.loads(_exactly(self._socket, size)) if size <= _MOST else None
        except (OSError, ValueError):
            return None
        return found if isinstance(found, dict) else None

    def close(self) -> None:
        """Close the connection."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()


class Gang:
    """The connections of a process with the other ranks: of rank 0 with all, and of the others with rank 0."""

    def __init__(self, rank: session_pb2.GangRank, inbox: queue.SimpleQueue[Any], lost: Callable[[int], None]) -> None:
        self.rank, self.size = rank.rank, rank.world_size
        self._a = rank
        self._key = rank.secret.encode()
        self._inbox = inbox
        self._lost = lost
        self._lock = threading.Lock()
        self._links: dict[int, Link] = {}
        self._done: set[int] = set()
        self._closed = False
        self._listener: socket.socket | None = None
        self._proving = threading.BoundedSemaphore(_UNPROVEN)
        self.port = rank.port
        """The port for the rendezvous of training code. Rank 0 chooses it, and the others know it once connected."""
        self._told_to_end = 0
        self.decisions: collections.deque[Message] = collections.deque()
        """What rank 0 has decided and this rank has not yet done."""
        self.reduces: dict[int, collections.deque[Message]] = collections.defaultdict(collections.deque)
        """Values of the other ranks to reduce, on rank 0."""
        self.decided = 0
        """How many decisions rank 0 has sent, or this rank has received."""
        self.waiting: dict[int, int] = {}
        """The decisions that ranks have waited long for, counted like `decided`."""

    @property
    def leads(self) -> bool:
        """Whether this is rank 0."""
        return self.rank == 0

    @property
    def others(self) -> range:
        """The ranks besides rank 0."""
        return range(1, self.size)

    def missing(self) -> list[int]:
        """Return the ranks that this one is not connected with yet."""
        with self._lock:
            return [r for r in (self.others if self.leads else range(1)) if r not in self._links]

    def has_ended(self, rank: int) -> bool:
        """Return whether a rank has ended the trial in good order."""
        return rank in self._done

    def open(self) -> None:
        """Listen for the other ranks on rank 0, or else try once to connect to rank 0."""
        if not self.leads:
            self._connect()
        elif self._listener is None:
            self._listener, self.port = claim_ports(self._a.control_port, self._a.port)
            threading.Thread(target=self._accept, name="outbid-gang", daemon=True).start()

    def send(self, message: Message) -> None:
        """Send a message to all ranks on rank 0, or else to rank 0."""
        with self._lock:
            links = list(self._links.values())
        for link in links:
            link.send(message)

    def decide(self, decision: Message) -> None:
        """Announce a decision of rank 0."""
        self.decided += 1
        self.send(decision)

    def forward(self, verdict: int) -> None:
        """Tell rank 0 once that this rank's worker wants the trial to pause or stop."""
        if self._told_to_end != verdict:
            self._told_to_end = verdict
            self.send({"verdict": verdict})

    def take(self, source: int, message: Message) -> None:
        """Handle a message of another rank that the trial does not handle itself."""
        if "reduce" in message:
            self.reduces[source].append(message)
        elif "bye" in message:
            self._done.add(source)
        elif "waits" in message:
            self.waiting[source] = message["waits"]
        elif "step" in message or "answer" in message or "save" in message:
            self.decided += 1
            self.decisions.append(message)

    def say_goodbye(self) -> None:
        """Tell the ranks that this process is connected with that it ends the trial in good order."""
        self.send({"bye": True})

    def close(self) -> None:
        """End all connections."""
        with self._lock:
            self._closed = True
            links = list(self._links.values())
        for link in links:
            link.close()
        if self._listener is not None:
            self._listener.close()

    def _connect(self) -> None:
        for port in range(self._a.control_port, self._a.control_port + PORTS):
            with contextlib.suppress(OSError):
                connection = socket.create_connection((self._a.address, port), timeout=_PATIENCE)
                with contextlib.ExitStack() as refused:
                    refused.callback(connection.close)
                    if (rendezvous := _prove(connection, self._key, self.rank)) is not None:
                        refused.pop_all()
                        self.port = rendezvous
                        self._add(0, connection)
                        return

    def _accept(self) -> None:
        """Accept connections. While many have not proven themselves, further ones are closed; ranks try again."""
        assert self._listener is not None
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return  # closed
            if self._proving.acquire(blocking=False):
                threading.Thread(target=self._admit, args=(connection,), name="outbid-gang", daemon=True).start()
            else:
                connection.close()

    def _admit(self, connection: socket.socket) -> None:
        try:
            rank = _check(connection, self._key, self.port)
        except OSError:
            rank = -1
        finally:
            self._proving.release()
        if rank in self.others and _is_joined(connection) and rank in self.missing():
            self._add(rank, connection)
        else:
            connection.close()

    def _add(self, rank: int, connection: socket.socket) -> None:
        connection.settimeout(None)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        link = Link(connection)
        with self._lock:
            if not self._closed:
                self._links[rank] = link
        if self._closed:  # close() has run and does not know this connection
            link.close()
            return
        self._inbox.put(FromRank(rank, {}))  # wakes a thread that waits for it
        threading.Thread(target=self._read, args=(rank, link), name="outbid-gang", daemon=True).start()

    def _read(self, rank: int, link: Link) -> None:
        done = False
        while (message := link.receive()) is not None:
            done = done or "bye" in message
            if "lost" in message:
                self._end(message["lost"])
                return
            self._inbox.put(FromRank(rank, message))
        if not done:
            self._end(rank)

    def _end(self, lost: int) -> None:
        """Handle the loss of a rank, unless this one has ended the trial."""
        with self._lock:
            if self._closed:
                return
        self.send({"lost": lost})
        self._lost(lost)


def reduced(how: str, values: list[dict[str, float]]) -> dict[str, float]:
    """Return the values of all ranks, reduced by name."""
    kinds: dict[str, Callable[[list[float]], float]] = {
        "mean": lambda v: sum(v) / len(v),
        "sum": sum,
        "min": lambda v: math.nan if any(map(math.isnan, v)) else min(v),
        "max": lambda v: math.nan if any(map(math.isnan, v)) else max(v),
    }
    return {name: kinds[how]([v[name] for v in values]) for name in values[0]}


REDUCTIONS: Final = ("mean", "sum", "min", "max")
"""The values of `report(reduce=)`."""


def exit_lost() -> None:
    """Exit at once, whatever the training code is doing, because a rank of its gang is gone."""
    with contextlib.suppress(Exception):
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(PEER_LOST)


def claim_ports(control: int, rendezvous: int) -> tuple[socket.socket, int]:
    """Listen at the first control port that is free and whose rendezvous port is free, and return both.

    A rendezvous port belongs to the process that listens at the control port with the same offset, so gangs of one
    host never have the same, even before their training code opens it. A rendezvous port of 0 is not used.
    """
    for offset in range(PORTS):
        try:
            if rendezvous:
                _server(rendezvous + offset).close()
            return _server(control + offset), rendezvous and rendezvous + offset
        except OSError as error:
            failure = error
    raise OSError(
        f"rank 0 finds no free pair of a port from {control} to {control + PORTS - 1}, where it listens for the other "
        f"ranks, and a rendezvous port from {rendezvous} to {rendezvous + PORTS - 1}: {failure}"
    )


def _server(port: int) -> socket.socket:
    """Listen at a port, for IPv6 too if the machine has it."""
    if socket.has_dualstack_ipv6():
        with contextlib.suppress(OSError):
            return socket.create_server(("", port), family=socket.AF_INET6, dualstack_ipv6=True, backlog=128)
    return socket.create_server(("", port), backlog=128)


def _exactly(connection: socket.socket, size: int, end: float | None = None) -> bytes:
    """Return the next bytes. If they have not arrived at time `end`, raise an OSError."""
    found = bytearray()
    while len(found) < size:
        if end is not None:
            connection.settimeout(max(0.001, end - time.monotonic()))
        part = connection.recv(size - len(found))
        if not part:
            raise OSError("the connection has ended")
        found += part
    return bytes(found)


def _answer(key: bytes, role: bytes, *parts: bytes) -> bytes:
    import hmac

    return hmac.digest(key, role + b"".join(parts), "sha256")


def _check(connection: socket.socket, key: bytes, port: int) -> int:
    """Prove to another rank that this is rank 0, and return its rank, or -1 if it does not know the secret."""
    import hmac

    challenge, end = os.urandom(_PROOF), time.monotonic() + _PATIENCE
    connection.settimeout(_PATIENCE)
    connection.sendall(challenge)
    rank, theirs, proof = (_exactly(connection, n, end) for n in (_LENGTH, _PROOF, _PROOF))
    if not hmac.compare_digest(proof, _answer(key, b"rank", challenge, rank, theirs)):
        return -1
    rendezvous = port.to_bytes(_LENGTH, "big")
    connection.sendall(rendezvous + _answer(key, b"rank 0", theirs, challenge, rendezvous))
    return int.from_bytes(rank, "big")


def _prove(connection: socket.socket, key: bytes, rank: int) -> int | None:
    """Prove to rank 0 which rank this is. Returns the rendezvous port, or None if it is not rank 0 of this gang."""
    import hmac

    number, mine, end = rank.to_bytes(_LENGTH, "big"), os.urandom(_PROOF), time.monotonic() + _PATIENCE
    challenge = _exactly(connection, _PROOF, end)
    connection.sendall(number + mine + _answer(key, b"rank", challenge, number, mine))
    port, proof = (_exactly(connection, n, end) for n in (_LENGTH, _PROOF))
    if not hmac.compare_digest(proof, _answer(key, b"rank 0", mine, challenge, port)):
        return None
    connection.sendall(_JOINED)
    return int.from_bytes(port, "big")


def _is_joined(connection: socket.socket) -> bool:
    """Wait until a rank that has proven itself has received the answer. Returns False if it has given up before.

    Such a rank tries again. It is not lost, which would end the trial on all ranks.
    """
    connection.settimeout(None)
    try:
        return _exactly(connection, len(_JOINED)) == _JOINED
    except OSError:
        return False
