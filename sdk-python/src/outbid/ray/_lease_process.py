"""Runs on a worker while an experiment of Ray Tune trains under a lease: holds the lease and reports.

It exchanges lines of JSON with the experiment's program, which listens; see `_places.py`.
"""

from __future__ import annotations

import json
import os
import select
import socket
from typing import Any

from outbid._core.errors import StopTrial
from outbid._training.trial import Trial
from outbid.ray._setup import BUNDLE

_POLL_SECONDS = 0.1


class _Line:
    """A connection to the program."""

    def __init__(self, host: str, port: int) -> None:
        self._socket = socket.create_connection((host, port), timeout=30)
        self._text = b""

    def say(self, **message: Any) -> None:
        self._socket.sendall(json.dumps(message).encode() + b"\n")

    def hear(self) -> list[dict[str, Any]]:
        """Return messages that arrive within the poll interval. Raises ConnectionError if the program has ended."""
        if not select.select([self._socket], [], [], _POLL_SECONDS)[0]:
            return []
        read = self._socket.recv(65536)
        if not read:
            raise ConnectionError("the Ray Tune experiment has ended, or its machine is gone")
        *lines, self._text = (self._text + read).split(b"\n")
        return [json.loads(line) for line in lines]


def hold(trial: Trial) -> None:
    """Hold the trial's lease until the experiment returns it or has paused its trial there."""
    line = _Line(trial.config.host, trial.config.port)
    line.say(
        key=trial.config.key,
        number=trial.number,
        node=os.environ.get("OUTBID_NODE", ""),
        bundle=os.environ.get(BUNDLE, ""),
        gpus=os.environ.get("CUDA_VISIBLE_DEVICES", ""),
    )
    asked = reported = False
    while True:
        for message in line.hear():
            if "metric" in message and not asked:
                trial.save({"reports": 1.0})
                reported = True
                try:
                    trial.report({trial.config.metric: message["metric"]})
                except StopTrial:
                    pass  # the next check handles this
            if "say" in message:
                print(message["say"], flush=True)
            if message.get("end") == "leave":
                raise StopTrial("the experiment has paused its trial here")
            if message.get("end") == "done":
                if not reported and not asked:
                    trial.report({trial.config.metric: float("nan")})  # no trial ran here
                return
        if trial.should_stop and not asked:
            asked = True
            line.say(pause=True)
