"""The interface of samplers in the study, and Outbid's samplers, asked through `outbid-lab suggest`."""

from __future__ import annotations

import json
import math
import os
import subprocess
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from problem import Config, Space, condition_of


class Sampler(Protocol):
    """A sampler of one run."""

    def ask(self) -> tuple[Any, Config]:
        """Return a handle of a new trial and its configuration."""

    def tell(self, trial: Any, loss: float) -> None:
        """Record the loss of a trial; NaN means that it failed."""


# A Maker starts a run: a space, a seed, the number of trials and how many run at a time.
Maker = Callable[[Space, int, int, int], Sampler]


def spec_of(space: Space) -> dict[str, Any]:
    """Return a space as in the spec of a sweep."""
    made: dict[str, Any] = {}
    for name, spec in space.items():
        kind, *rest = spec
        if kind == "choice":
            made[name] = {"choice": {"values": rest[0]}}
        else:
            made[name] = {kind: {"low": rest[0], "high": rest[1], "log": rest[2]}}
        when = condition_of(spec)
        if when is not None:
            made[name]["when"] = {"param": when[0], "in": when[1]}
    return {"space": made}


class Ours:
    """A sampler of Outbid."""

    _server: subprocess.Popen[str] | None = None

    def __init__(self, name: str, space: Space, seed: int, past: Sequence[Any] = ()) -> None:
        self._space, self._asked, self.cpu = space, 0, 0.0
        if Ours._server is None or Ours._server.poll() is not None:
            program = os.environ.get("OUTBID_LAB_BIN", "outbid-lab")
            Ours._server = subprocess.Popen([program, "suggest"], stdin=-1, stdout=-1, text=True)
        self._send({"start": {"sampler": name, "seed": seed, "spec": spec_of(space), "past": list(past)}})

    def _send(self, request: Any) -> None:
        assert Ours._server is not None and Ours._server.stdin is not None
        Ours._server.stdin.write(json.dumps(request) + "\n")
        Ours._server.stdin.flush()

    def ask(self) -> tuple[int, Config]:
        """Return a new trial."""
        assert Ours._server is not None and Ours._server.stdout is not None
        self._send({"ask": True})
        reply = json.loads(Ours._server.stdout.readline())
        self.cpu += reply["cpu"]
        self._asked += 1
        config = {k: _typed(self._space[k], v) for k, v in reply["config"].items()}
        return self._asked - 1, config

    def tell(self, trial: int, loss: float) -> None:
        """Record a loss."""
        self._send({"tell": {"trial": trial, "cost": loss if math.isfinite(loss) else None}})


def _typed(spec: tuple[Any, ...], value: Any) -> Any:
    if spec[0] == "float":
        return float(value)
    return int(value) if spec[0] == "int" else value


def maker(name: str) -> Maker:
    """Return what starts a run of one of Outbid's samplers."""
    return lambda space, seed, trials, flight: Ours(name, space, seed)
