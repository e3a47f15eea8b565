"""What is shown while a sweep is waited for: a live table in a terminal or notebook, plain lines elsewhere."""

from __future__ import annotations

import html
import importlib
import sys
import time
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Protocol

from outbid._model import SweepInfo, TrialResult, Update, flatten

if TYPE_CHECKING:
    from rich.console import Group

_SHOWN = 10  # trials in a table
_LINE_SECONDS = 5.0
_PAGE_SECONDS = 0.5


class Display(Protocol):
    """Something that shows updates."""

    def update(self, update: Update) -> None:
        """Take in an update."""

    def end(self, sweep: SweepInfo, trials: Iterable[TrialResult]) -> None:
        """Show how it ended."""

    def close(self) -> None:
        """Give the screen back."""


class NoDisplay:
    """Shows nothing."""

    def update(self, update: Update) -> None:
        """Do nothing."""

    def end(self, sweep: SweepInfo, trials: Iterable[TrialResult]) -> None:
        """Do nothing."""

    def close(self) -> None:
        """Do nothing."""


def make_display(wanted: bool) -> Display:
    """Return the display that suits where Python runs."""
    if not wanted:
        return NoDisplay()
    if _in_notebook():
        return NotebookDisplay()
    if sys.stdout.isatty():
        return TerminalDisplay()
    return LineDisplay()


class _Board:
    """How the sweep stands, and how fast it goes."""

    def __init__(self) -> None:
        self.sweep: SweepInfo | None = None
        self.trials: dict[int, TrialResult] = {}
        self._marks: list[tuple[float, int]] = []

    def take(self, update: Update) -> SweepInfo:
        """Take in an update."""
        self.sweep = update.sweep
        self.trials.update({trial.number: trial for trial in update.trials})
        now = time.monotonic()
        self._marks = [*(m for m in self._marks if now - m[0] < 10), (now, update.sweep.steps)]
        return update.sweep

    @property
    def rate(self) -> float:
        """Steps a second over the last ten seconds."""
        (start, first), (end, last) = self._marks[0], self._marks[-1]
        return (last - first) / (end - start) if end > start else 0.0


class TerminalDisplay:
    """A live table."""

    def __init__(self) -> None:
        from rich.live import Live

        self._board = _Board()
        self._live = Live(refresh_per_second=8)
        self._live.start()
        self._noted = 0

    def update(self, update: Update) -> None:
        """Draw the table."""
        sweep = self._board.take(update)
        self._live.update(_table(sweep, self._board.trials.values(), self._board.rate))

    def end(self, sweep: SweepInfo, trials: Iterable[TrialResult]) -> None:
        """Draw the table a last time."""
        self._live.update(_table(sweep, trials, 0.0))

    def close(self) -> None:
        """Leave the table as it is."""
        self._live.stop()


class LineDisplay:
    """A line now and then: when there is a new best, and every few seconds."""

    def __init__(self) -> None:
        self._board = _Board()
        self._best: float | None = None
        self._next = 0.0
        self._notes: set[tuple[str, Any]] = set()

    def update(self, update: Update) -> None:
        """Print what is new."""
        sweep = self._board.take(update)
        for note in sweep.notes:
            if note.level != "info" and (note.text, note.time) not in self._notes:
                self._notes.add((note.text, note.time))
                where = f"trial {note.trial}: " if note.trial is not None else ""
                print(f"{sweep.id}: {note.level}: {where}{note.text}", flush=True)
        best = sweep.best.metric if sweep.best else None
        now = time.monotonic()
        if (best != self._best and now >= self._next - _LINE_SECONDS + 0.5) or now >= self._next:
            self._best, self._next = best, now + _LINE_SECONDS
            print(_line(sweep, self._board.rate), flush=True)

    def end(self, sweep: SweepInfo, trials: Iterable[TrialResult]) -> None:
        """Print how it ended."""
        reason = f" ({sweep.reason})" if sweep.reason else ""
        print(f"{sweep.id}: {sweep.state}{reason}; {_best_text(sweep)}", flush=True)

    def close(self) -> None:
        """Do nothing."""


class NotebookDisplay:
    """A table in the cell's output, drawn anew."""

    def __init__(self) -> None:
        ipython: Any = importlib.import_module("IPython.display")
        self._html = ipython.HTML
        self._board = _Board()
        self._next = 0.0
        first = self._html("<p>waiting for the first trial</p>")
        self._handle: Any = ipython.display(first, display_id=True)

    def update(self, update: Update) -> None:
        """Draw the table, at most twice a second."""
        sweep = self._board.take(update)
        now = time.monotonic()
        if now >= self._next:
            self._next = now + _PAGE_SECONDS
            self._handle.update(self._html(html_of(sweep, self._board.trials.values(), self._board.rate)))

    def end(self, sweep: SweepInfo, trials: Iterable[TrialResult]) -> None:
        """Draw the table a last time."""
        self._handle.update(self._html(html_of(sweep, trials)))

    def close(self) -> None:
        """Do nothing."""


def html_of(sweep: SweepInfo, trials: Iterable[TrialResult], rate: float = 0.0) -> str:
    """Return a sweep and its most telling trials as HTML."""
    esc = html.escape
    rows = []
    for trial in _telling(sweep, trials):
        cells = [
            str(trial.number),
            trial.state,
            _bar_text(trial),
            _value(trial.metric),
            config_text(trial.config),
        ]
        rows.append(cells)
    table = html_table(("trial", "state", "step", sweep.metric, "configuration"), rows)
    notes = "".join(f"<p>{esc(n.level)}: {esc(n.text)}</p>" for n in sweep.notes if n.level != "info")
    share = _share(sweep)
    bar = f'<progress value="{share:.3f}" max="1"></progress> ' if share is not None else ""
    return f"<div><p>{bar}<b>{esc(sweep.id)}</b> {esc(_line(sweep, rate).split(': ', 1)[1])}</p>{table}{notes}</div>"


def html_table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """Return a table of plain texts as HTML."""
    esc = html.escape
    body = "".join("<tr>" + "".join(f"<td>{esc(cell)}</td>" for cell in row) + "</tr>" for row in rows)
    top = "".join(f"<th>{esc(cell)}</th>" for cell in head)
    return f"<table><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table>"


def _table(sweep: SweepInfo, trials: Iterable[TrialResult], rate: float) -> Group:
    from rich.console import Group
    from rich.progress_bar import ProgressBar
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False)
    for column in ("trial", "state", "steps", "", sweep.metric):
        table.add_column(column, justify="right" if column == "trial" else "left", no_wrap=True)
    table.add_column("configuration", overflow="ellipsis", no_wrap=True)
    for trial in _telling(sweep, trials):
        is_best = sweep.best is not None and trial.number == sweep.best.number
        bar = (
            ProgressBar(total=trial.until_step, completed=min(trial.step, trial.until_step), width=12)
            if trial.until_step
            else Text("")
        )
        cells = [
            str(trial.number),
            trial.state,
            bar,
            _bar_text(trial),
            _value(trial.metric),
            config_text(trial.config),
        ]
        table.add_row(*cells, style="bold" if is_best else "dim" if trial.over else "")
    parts: list[Any] = [Text(_line(sweep, rate), style="bold")]
    if (share := _share(sweep)) is not None:
        parts.append(ProgressBar(total=1.0, completed=share, width=60))
    parts.append(table)
    parts.extend(
        Text(f"{n.level}: {n.text}", style="red" if n.level == "error" else "yellow")
        for n in sweep.notes[-3:]
        if n.level != "info"
    )
    return Group(*parts)


def _line(sweep: SweepInfo, rate: float) -> str:
    counts = ", ".join(f"{n} {state}" for state, n in sweep.counts.items() if n and state != "total")
    parts = [sweep.state, counts or "no trials yet", f"{sweep.steps} steps"]
    if rate:
        parts.append(f"{rate:.1f} steps/s")
    parts.append(_best_text(sweep))
    if sweep.waiting and not sweep.over:
        parts.append(f"waiting: {sweep.waiting}")
    return f"{sweep.id}: " + "; ".join(parts)


def _best_text(sweep: SweepInfo) -> str:
    if sweep.best is None:
        return f"no {sweep.metric} yet"
    best = sweep.best
    return f"best {sweep.metric} {_value(best.metric)} (trial {best.number}, step {best.best_step})"


def _share(sweep: SweepInfo) -> float | None:
    """Return how much of the work is done, if that can be known."""
    if sweep.total_steps:
        return min(1.0, sweep.steps / sweep.total_steps)
    if sweep.total_trials:
        ended = sum(sweep.counts.get(s, 0) for s in ("completed", "stopped", "failed", "cancelled"))
        return min(1.0, ended / sweep.total_trials)
    return None


def _telling(sweep: SweepInfo, trials: Iterable[TrialResult]) -> list[TrialResult]:
    """Return the best trial, those that run, then the newest, ten at the most."""
    order = {"running": 0, "queued": 1, "paused": 2}
    best = sweep.best.number if sweep.best else -1
    ranked = sorted(trials, key=lambda t: (t.number != best, order.get(t.state, 3), -t.number))
    return ranked[:_SHOWN]


def _bar_text(trial: TrialResult) -> str:
    return f"{trial.step}/{trial.until_step}" if trial.until_step else str(trial.step)


def _value(value: float | None) -> str:
    return "" if value is None else f"{value:.5g}"


def config_text(config: Mapping[str, Any]) -> str:
    """Return a configuration in one line."""
    return " ".join(
        f"{name}={value:.4g}" if isinstance(value, float) else f"{name}={value}"
        for name, value in flatten(config).items()
    )


def _in_notebook() -> bool:
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    return type(shell).__name__ == "ZMQInteractiveShell"
