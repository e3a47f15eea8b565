"""Greedy soups: averages of a sweep's best checkpoints."""

from __future__ import annotations

import math
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from outbid._client.local_server import find_binary
from outbid._core.errors import CheckpointError, NoResultError, NotFoundError
from outbid._results import model
from outbid._results.checkpoint_info import Ingredient
from outbid._training import tensors
from outbid._training.manifest import is_manifest

if TYPE_CHECKING:
    from outbid._client.connection import Connection

Evaluate = Callable[[Mapping[str, Any]], float]
"""Returns the value of weights on held-out data, in the sweep's metric."""


@dataclass(frozen=True)
class Soup:
    """The mean of some of a sweep's checkpoints.

    `weights` are arrays by name. `metric` is their value from `evaluate`, or None. `ingredients` are the trials, best
    first. `number` is the soup's number if the sweep keeps it, otherwise None.
    """

    weights: Mapping[str, Any] = field(repr=False)
    metric: float | None
    ingredients: tuple[Ingredient, ...]
    number: int | None = None

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the weights to a safetensors file."""
        tensors.write(os.fspath(path), dict(self.weights), "")
        return Path(path)


def kept(client: Connection, sweep: str, number: int = 0) -> Soup:
    """Return a soup that the sweep keeps; the newest if `number` is 0."""
    with tempfile.TemporaryDirectory(prefix="outbid-soup-") as place:
        info = client.fetch_soup(sweep, number, Path(place) / "soup.safetensors")
        return Soup(tensors.read(Path(place) / "soup.safetensors")[0], info.metric, info.ingredients, info.number)


def greedy(
    sweep: str,
    mode: str,
    trials: Iterable[model.TrialResult],
    k: int,
    evaluate: Evaluate | None,
    client: Connection | None = None,
) -> Soup:
    """Make a soup with the code of `outbid average` and workers. With a client, the sweep keeps it."""
    if isinstance(k, bool) or not isinstance(k, int) or k < 1:
        raise ValueError(f"soup: k must be a whole number from 1, got {k!r}")
    sign = 1 if mode == "min" else -1
    ranked = [(sign * t.metric, t.number, t) for t in trials if t.metric is not None and math.isfinite(t.metric)]
    with tempfile.TemporaryDirectory(prefix="outbid-soup-") as place:
        mean = Path(place) / "mean.safetensors"
        joined: list[Path] = []
        found: list[Ingredient] = []
        worth: float | None = None
        for _, number, trial in sorted(ranked, key=lambda r: r[:2]):
            if len(found) == k:
                break
            try:
                file = trial.download(Path(place) / f"{number}.safetensors")
            except NotFoundError:
                continue  # its checkpoint was deleted: see checkpoints=ob.Checkpoints(best=...)
            if is_manifest(file):
                raise CheckpointError(
                    f"soup of {sweep}: the checkpoint of trial {number} was saved with sharded=True, and shards cannot "
                    "be averaged: save whole weights in rank 0"
                )
            own = float(trial.metric or 0.0)
            if note := _average(sweep, [*joined, file], mean):
                if not joined:
                    raise CheckpointError(f"soup of {sweep}: {note}")
                found.append(Ingredient(number, own, None, False, note))
                continue
            value = None if evaluate is None else float(evaluate(tensors.read(mean)[0]))
            if not joined and value is not None and math.isnan(value):
                raise ValueError(f"soup of {sweep}: evaluate returned NaN for trial {number} alone")
            helps = value is None or worth is None or sign * value <= sign * worth
            found.append(Ingredient(number, own, value, helps))
            if helps:
                joined.append(file)
                worth = value
        if not joined:
            raise NoResultError(f"no trial of {sweep} that reported its metric keeps a checkpoint")
        if note := _average(sweep, joined, mean):
            raise CheckpointError(f"soup of {sweep}: {note}")
        info = None if client is None else client.publish_soup(sweep, mean, worth, found)
        return Soup(tensors.read(mean)[0], worth, tuple(found), info.number if info else None)


def _average(sweep: str, files: list[Path], to: Path) -> str:
    """Write the mean of files, each named by its trial, to a file; returns the error, or ""."""
    if len(files) == 1:
        shutil.copyfile(files[0], to)
        return ""
    command = [find_binary(), "average", *map(str, files), "--to", str(to)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode == 0:
        return ""
    note = done.stderr.strip().rpartition("\n")[2].removeprefix("outbid: ") or "it cannot be averaged"
    for file in files:  # the files are temporary, so name the trials instead
        note = note.replace(str(file), f"{sweep}/{file.stem}")
    return note
