"""One of several data-parallel ranks: each computes its part of every mini-batch, and all do the same step.

measure.py compares forks with these. The ranks find each other by torchrun's environment variables. Rank 0 gathers the
gradients over sockets, averages them, and reports. "local" ranks average their weights after each step instead, which
needs fewer messages.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import time
from pathlib import Path

import models
import numpy as np

RANK, RANKS = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])


def receive(peer: socket.socket, size: int) -> np.ndarray:
    """Return the next array from a peer."""
    data = bytearray(size)
    view = memoryview(data)
    while len(view):
        view = view[peer.recv_into(view) :]
    return np.frombuffer(data, np.float32)


def peers() -> list[socket.socket]:
    """Return connections to the other ranks for rank 0, and to rank 0 for the others."""
    address = ("127.0.0.1", int(os.environ["MASTER_PORT"]))
    if RANK == 0:
        with socket.create_server(address) as server:
            found = [server.accept()[0] for _ in range(RANKS - 1)]
    else:
        end = time.monotonic() + 120
        while True:
            try:
                found = [socket.create_connection(address)]
                break
            except ConnectionRefusedError:
                if time.monotonic() > end:
                    raise
                time.sleep(0.05)
    for peer in found:
        peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return found


def main() -> None:
    name, folder, seed, local = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), sys.argv[4] == "local"
    steps = int(os.environ["OUTBID_UNTIL_STEP"])
    model, others = models.make(name, folder, seed), peers()
    draw = np.random.default_rng([int(os.environ["OUTBID_SEED"]), RANK])

    def average(gradients):
        flat = np.concatenate([g.ravel() for g in gradients.values()]).astype(np.float32)
        if RANK == 0:
            flat = sum((receive(peer, flat.nbytes) for peer in others), flat) / np.float32(RANKS)
            for peer in others:
                peer.sendall(flat.tobytes())
        else:
            others[0].sendall(flat.tobytes())
            flat = receive(others[0], flat.nbytes)
        ends = np.cumsum([g.size for g in gradients.values()])[:-1]
        return {k: part.reshape(g.shape) for (k, g), part in zip(gradients.items(), np.split(flat, ends), strict=True)}

    for step in range(1, steps + 1):
        if local:
            models.train_step(model, draw, np.arange(model.samples), RANKS)
            model.state = average(model.state)
        else:
            models.train_step(model, draw, np.arange(model.samples), RANKS, average)
        if RANK == 0:
            with open(os.environ["OUTBID_REPORT"], "a") as report:
                report.write(json.dumps({"step": step, "quality": model.quality()}) + "\n")


if __name__ == "__main__":
    main()
