"""Files with a trial's results in its directory: Outbid's own file, and copies with the names of Ray's.

The server's results are authoritative. A file adds values that are not numbers, if it agrees with the server. Training
code may overwrite the copies.
"""

from __future__ import annotations

import csv
import json
import math
import os
import pickle
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any

from outbid.tune import _order
from outbid.tune._trial import Trial, flatten, to_json

OWN, COPY, TABLE = ".results.json", "result.json", "progress.csv"
LAST = ".last.pkl"
"""The file with a trial's last result, if JSON cannot represent it."""

UNSENT = frozenset(
    {"timestamp", "trial_id", "date", "pid", "hostname", "node_ip", "time_since_restore", "done"}
    | {"iterations_since_restore", "checkpoint_dir_name", "config"}
)
"""Fields of a result that are only in the trial's files."""

_TAIL = 256 << 10  # bytes at the end of the file that are searched for the newest results


def read_results(folder: Path) -> list[dict[str, Any]]:
    """Return the results in a trial's directory, without an incomplete last line.

    A directory of Ray's or of an earlier version only has `result.json`.
    """
    for name in (OWN, COPY):
        try:
            lines = (folder / name).read_bytes().splitlines()
        except OSError:
            continue
        return list(_parsed(lines))
    return []


def read_error(folder: Path) -> Exception | None:
    """Return the exception in a trial's directory, or None without one or if it cannot be recreated here."""
    try:
        found = pickle.loads((folder / "error.pkl").read_bytes())
    except Exception:  # the file, or a module that the exception needs, may not be here
        return None
    return found if isinstance(found, Exception) else None


def newest_results(folder: Path) -> Iterator[dict[str, Any]]:
    """Yield the newest results in Outbid's file of a trial's directory, newest first.

    Yields nothing without such a file, and skips an incomplete last line.
    """
    try:
        with (folder / OWN).open("rb") as file:
            begin = file.seek(max(0, file.seek(0, os.SEEK_END) - _TAIL))
            lines = file.read().splitlines()
    except OSError:
        return
    for line in reversed(lines[1:] if begin else lines):
        yield from _parsed([line])


def saved_results(folder: Path) -> Iterator[tuple[dict[str, Any], Path]]:
    """Yield the results of a trial that have checkpoints in its directory, and the checkpoints, newest first."""
    for result in reversed(read_results(folder)):
        name = result.get("checkpoint_dir_name")
        if name and (folder / name).is_dir():
            yield result, folder / name


def agrees(result: Mapping[str, Any], metrics: Mapping[str, Any]) -> bool:
    """Return whether a result in a file has the same numbers as on the server."""
    flat = flatten(result)
    for name, value in metrics.items():
        mine, theirs = _order.number(flat.get(name, value)), _order.number(value)
        if mine is None or theirs is None or isinstance(value, bool):
            continue
        if mine != theirs and not (math.isnan(mine) and math.isnan(theirs)):
            return False
    return True


def whole_result(trial: Trial, folder: Path, metrics: Mapping[str, Any]) -> dict[str, Any]:
    """Return a trial's result of an iteration, from its file if that has it, otherwise from its numbers."""
    step = int(metrics["training_iteration"])
    numbers = {name: value for name, value in metrics.items() if isinstance(value, (int, float))}
    sent = {name: value for name, value in numbers.items() if name not in UNSENT}
    # The trial may have written more results since.
    for found in newest_results(folder):
        if found.get("training_iteration") == step and agrees(found, sent):
            return {**found, "config": trial.config}
    return from_report(trial, step, numbers)


def from_report(trial: Trial, step: int, metrics: Mapping[str, float]) -> dict[str, Any]:
    """Return a result made from a report's numbers, if the trial's files cannot be read here."""
    out: dict[str, Any] = {}
    for path, value in metrics.items():
        inside = out
        *around, last = path.split("/")
        for key in around:
            inside = inside.setdefault(key, {})
            if not isinstance(inside, dict):
                break
        else:
            inside[last] = value
    out.setdefault("training_iteration", step)
    out["training_iteration"] = int(out["training_iteration"])
    return {**out, "trial_id": trial.trial_id, "config": trial.config, "done": False}


class Writer:
    """Writes a trial's results to Outbid's file and the copies."""

    def __init__(self, folder: Path, before: list[dict[str, Any]]) -> None:
        self._folder = folder
        self._own: IO[str] = (folder / OWN).open("w")
        self._copies: dict[str, IO[str]] = {COPY: (folder / COPY).open("w")}
        self._table: csv.DictWriter[str] | None = None
        for result in before:
            self.write(result, flatten(result))

    def write(self, result: Mapping[str, Any], flat: Mapping[str, Any]) -> None:
        """Append a result."""
        line = to_json(result) + "\n"
        self._own.write(line)
        self._own.flush()
        self._copy(COPY, line)
        # The columns of Ray's file: nested values are last, and the configuration is in params.json.
        nested = [name for name in flat if name not in result and not name.startswith("config/")]
        if self._table is None:
            columns = [name for name in flat if name in result and name != "config"] + nested
            file = self._copies[TABLE] = (self._folder / TABLE).open("w", newline="")
            self._table = csv.DictWriter(file, columns, extrasaction="ignore")
            self._table.writeheader()
            file.flush()
        if TABLE in self._copies and self._is_ours(TABLE):
            self._table.writerow(flat)
            self._copies[TABLE].flush()

    def replace_last(self, result: Mapping[str, Any]) -> None:
        """Replace the last result."""
        for name in (OWN, COPY):
            if name == COPY and not self._is_ours(COPY):
                continue
            file = self._own if name == OWN else self._copies[COPY]
            lines = (self._folder / name).read_text().splitlines()[:-1]
            file.seek(0)
            file.truncate()
            file.write("\n".join([*lines, to_json(result)]) + "\n")
            file.flush()

    def close(self) -> None:
        """Close the files."""
        for file in (self._own, *self._copies.values()):
            file.close()

    def _copy(self, name: str, text: str) -> None:
        if self._is_ours(name):
            self._copies[name].write(text)
            self._copies[name].flush()

    def _is_ours(self, name: str) -> bool:
        """Return whether a copy is unchanged. If the training code has written it, it is no longer updated."""
        file = self._copies.get(name)
        if file is None:
            return False
        try:
            there, here = (self._folder / name).stat(), os.fstat(file.fileno())
            if (there.st_dev, there.st_ino, there.st_size) == (here.st_dev, here.st_ino, file.tell()):
                return True
        except OSError:
            pass
        self._copies.pop(name).close()
        return False


def _parsed(lines: list[bytes]) -> Iterator[dict[str, Any]]:
    for line in lines:
        try:
            found = json.loads(line)
        except ValueError:
            return
        if not isinstance(found, dict):
            return
        yield found
