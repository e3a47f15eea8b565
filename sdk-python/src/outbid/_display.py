"""What is shown while a sweep is waited for: a live table in a terminal or notebook, plain lines elsewhere."""

from __future__ import annotations

import datetime
import html
import importlib
import sys
import time
from collections.abc import Iterable
from typing import Any, Protocol

from outbid import _html
from outbid._layout import (
    best_text,
    config_text,
    duration,
    elapsed,
    lay_out,
    seed_text,
    share,
    step_text,
    steps_text,
    telling,
    trials_text,
    value_text,
)
from outbid._model import Note, SweepInfo, TrialResult, Update

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
        self._noted: set[Any] = set()

    def take(self, update: Update) -> SweepInfo:
        """Take in an update."""
        self.sweep = update.sweep
        self.trials.update({trial.number: trial for trial in update.trials})
        now = time.monotonic()
        self._marks = [*(m for m in self._marks if now - m[0] < 10), (now, update.sweep.steps)]
        return update.sweep

    def warnings(self, sweep: SweepInfo) -> list[Note]:
        """Return the notes of a sweep that warn and have not been returned before."""
        fresh = [n for n in sweep.notes if n.level != "info" and (n.text, n.trial, n.time) not in self._noted]
        self._noted.update((n.text, n.trial, n.time) for n in fresh)
        return fresh

    @property
    def rate(self) -> float:
        """Steps a second over the last ten seconds."""
        (start, first), (end, last) = self._marks[0], self._marks[-1]
        return (last - first) / (end - start) if end > start else 0.0


class TerminalDisplay:
    """A few lines and a table, drawn anew in place; warnings stand above them."""

    def __init__(self) -> None:
        from rich.live import Live

        self._board = _Board()
        self._live = Live(refresh_per_second=8, vertical_overflow="crop")
        self._live.start()

    def update(self, update: Update) -> None:
        """Draw the table."""
        self._draw(self._board.take(update), self._board.trials.values(), self._board.rate)

    def end(self, sweep: SweepInfo, trials: Iterable[TrialResult]) -> None:
        """Draw the table a last time."""
        self._draw(sweep, trials, 0.0)

    def close(self) -> None:
        """Leave the table as it is."""
        self._live.stop()

    def _draw(self, sweep: SweepInfo, trials: Iterable[TrialResult], rate: float) -> None:
        from rich.text import Text

        for note in self._board.warnings(sweep):
            style = "red" if note.level == "error" else "yellow"
            self._live.console.print(Text(note_text(note), style=style), soft_wrap=True)
        lines = lay_out(sweep, trials, self._live.console.width, rate, _now())
        self._live.update(Text("\n").join(Text(line, style=style) for line, style in lines))


class LineDisplay:
    """A line now and then: when there is a new best, and every few seconds."""

    def __init__(self) -> None:
        self._board = _Board()
        self._best: float | None = None
        self._next = 0.0

    def update(self, update: Update) -> None:
        """Print what is new."""
        sweep = self._board.take(update)
        self._warn(sweep)
        best = sweep.best.metric if sweep.best else None
        now = time.monotonic()
        if (best != self._best and now >= self._next - _LINE_SECONDS + 0.5) or now >= self._next:
            self._best, self._next = best, now + _LINE_SECONDS
            print(f"{sweep.id}: {_line(sweep, self._board.rate)}", flush=True)

    def end(self, sweep: SweepInfo, trials: Iterable[TrialResult]) -> None:
        """Print how it ended."""
        self._warn(sweep)
        reason = f" ({sweep.reason})" if sweep.reason else ""
        took = duration(elapsed(sweep, _now()))
        print(
            f"{sweep.id}: {sweep.state}{reason} after {took}{seed_text(sweep)}; best: {best_text(sweep, trials)}",
            flush=True,
        )

    def close(self) -> None:
        """Do nothing."""

    def _warn(self, sweep: SweepInfo) -> None:
        for note in self._board.warnings(sweep):
            print(f"{sweep.id}: {note_text(note)}", flush=True)


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
    trials = list(trials)
    rows = [
        (str(t.number), t.state, step_text(t), value_text(t.metric), config_text(t.config))
        for t in telling(sweep, trials)
    ]
    table = _html.table(("trial", "state", "step", sweep.metric, "configuration"), rows) if rows else ""
    notes = "".join(f"<p>{esc(note_text(n))}</p>" for n in sweep.notes if n.level != "info")
    done = share(sweep)
    bar = f'<progress value="{done:.3f}" max="1"></progress> ' if done is not None else ""
    head = f"<b>{esc(sweep.id)}</b> {esc(_line(sweep, rate, trials))}"
    return f"<div><p>{bar}{head}</p>{notes}{table}</div>"


def note_text(note: Note) -> str:
    """Return a note in one line."""
    where = f"trial {note.trial}: " if note.trial is not None else ""
    return f"{note.level}: {where}{note.text}"


def _line(sweep: SweepInfo, rate: float, trials: Iterable[TrialResult] = ()) -> str:
    """Return how a sweep stands, in one line."""
    reason = f" ({sweep.reason})" if sweep.reason else ""
    parts = [
        f"{sweep.state}{reason}, {duration(elapsed(sweep, _now()))}{seed_text(sweep)}",
        f"trials: {trials_text(sweep)}",
        f"steps: {steps_text(sweep, rate)}",
        f"best: {best_text(sweep, trials)}",
    ]
    if sweep.waiting and not sweep.over:
        parts.append(f"waits: {sweep.waiting}")
    return "; ".join(parts)


def _now() -> datetime.datetime:
    return datetime.datetime.now(datetime.timezone.utc)


def _in_notebook() -> bool:
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    return type(shell).__name__ == "ZMQInteractiveShell"
