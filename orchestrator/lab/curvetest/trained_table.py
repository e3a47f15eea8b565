"""Tables of learning curves in the format of read.go: a JSON object a line."""

from __future__ import annotations

import gzip
import json
import math
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Table:
    """Configurations that were drawn, and their metrics after each epoch; values that are not finite are null."""

    mode: str
    parameters: list[str]
    rows: Iterable[Sequence[float]]
    values: Iterable[Sequence[float]]


def write(out: str, tables: Mapping[str, Callable[[], Table]], only: Sequence[str]) -> None:
    """Make the tables of all tasks, or of the named ones, and write one line for each."""
    if unknown := set(only) - set(tables):
        sys.exit(f"no task is called {', '.join(sorted(unknown))}; there are {', '.join(tables)}")
    with gzip.open(out, "wt") as file, np.errstate(all="ignore"):
        for task, make in tables.items():
            if only and task not in only:
                continue
            table = make()
            line = {
                "set": "Trained",
                "task": task,
                "mode": table.mode,
                "parameters": table.parameters,
                "rows": [[float(f"{v:.6g}") for v in row] for row in table.rows],
                "values": [[float(f"{v:.6g}") if math.isfinite(v) else None for v in curve] for curve in table.values],
            }
            file.write(json.dumps(line) + "\n")
            file.flush()
