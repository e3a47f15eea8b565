"""Displays for a program that waits for a sweep: a live table in a terminal or notebook, lines elsewhere."""

from __future__ import annotations

import datetime
import html
import importlib
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol

from outbid._display import html_table
from outbid._display.failures import TRACEBACK, Failures
from outbid._display.layout import (
    best_text,
    duration,
    elapsed,
    held_text,
    lay_out,
    memory_text,
    page_table,
    seed_text,
    share,
    steps_text,
    telling,
    trials_text,
    winner_text,
)
from outbid._results.model import SweepInfo, TrialResult, Update

_LINE_SECONDS = 5.0
_PAGE_SECONDS = 0.5


class Display(Protocol):
    """Shows updates of a sweep."""

    def update(self, update: Update) -> None:
        """Show an update."""

    def end(self, sweep: SweepInfo, trials: Iterable[TrialResult]) -> None:
        """Show the end of the sweep."""

    def close(self) -> None:
        """Release the screen."""


class NoDisplay:
    """A display that shows nothing."""

    def update(self, update: Update) -> None:
        """Do nothing."""

    def end(self, sweep: SweepInfo, trials: Iterable[TrialResult]) -> None:
        """Do nothing."""

    def close(self) -> None:
        """Do nothing."""


def make_display(wanted: bool, explain: Callable[[int], str] | None = None, page: str = "") -> Display:
    """Return the display for this environment.

    `explain` returns a trial's traceback. `page` is the address of the sweep's page in the dashboard, which is shown.
    """
    if not wanted:
        return NoDisplay()
    failures = Failures(explain)
    if _in_notebook():
        return NotebookDisplay(failures, page)
    if sys.stdout.isatty():
        return TerminalDisplay(failures, page)
    return LineDisplay(failures, page)


class _Board:
    """The current state of the sweep, and its speed."""

    def __init__(self) -> None:
        self.sweep: SweepInfo | None = None
        self.trials: dict[int, TrialResult] = {}
        self._marks: list[tuple[float, int]] = []

    def take(self, update: Update) -> SweepInfo:
        """Process an update and return its sweep."""
        self.sweep = update.sweep
        self.trials.update({trial.number: trial for trial in update.trials})
        now = time.monotonic()
        self._marks = [*(m for m in self._marks if now - m[0] < 10), (now, update.sweep.steps)]
        return update.sweep

    @property
    def rate(self) -> float:
        """Steps per second over the last ten seconds."""
        (start, first), (end, last) = self._marks[0], self._marks[-1]
        return (last - first) / (end - start) if end > start else 0.0


class TerminalDisplay:
    """A few lines and a table that are redrawn in place, with warnings above them."""

    def __init__(self, failures: Failures, page: str = "") -> None:
        from rich.live import Live
        from rich.text import Text

        self._board, self._failures = _Board(), failures
        self._live = Live(refresh_per_second=8, vertical_overflow="crop")
        if page:
            self._live.console.print(Text(f"dashboard: {page}", style="dim"), soft_wrap=True)
        self._live.start()

    def update(self, update: Update) -> None:
        """Draw the table."""
        self._draw(self._board.take(update), self._board.trials.values(), self._board.rate)

    def end(self, sweep: SweepInfo, trials: Iterable[TrialResult]) -> None:
        """Draw the table for the last time, and print the winning configuration below it."""
        from rich.text import Text

        trials = list(trials)
        self._draw(sweep, trials, 0.0, last=True)
        self._live.stop()
        if winner := winner_text(sweep):
            self._live.console.print(Text(winner, style="bold"), soft_wrap=True)

    def close(self) -> None:
        """Leave the table on the screen."""
        self._live.stop()

    def _draw(self, sweep: SweepInfo, trials: Iterable[TrialResult], rate: float, *, last: bool = False) -> None:
        from rich.text import Text

        styles = {"error": "red", TRACEBACK: "dim"}
        for text, level in self._failures.take(sweep, last=last):
            self._live.console.print(Text(text, style=styles.get(level, "yellow")), soft_wrap=True)
        lines = lay_out(sweep, trials, self._live.console.width, rate, _now(), self._failures.alike())
        # a terminal echoes ^C at the cursor: a full line would wrap and leave the table's first line behind
        if not last:
            lines.append(("", ""))
        self._live.update(Text("\n").join(Text(line, style=style) for line, style in lines))


class LineDisplay:
    """Prints a line when there is a new best trial, and every few seconds."""

    def __init__(self, failures: Failures, page: str = "") -> None:
        self._board, self._failures = _Board(), failures
        self._best: float | None = None
        self._next = 0.0
        if page:
            print(f"dashboard: {page}", flush=True)

    def update(self, update: Update) -> None:
        """Print changes."""
        sweep = self._board.take(update)
        self._warn(sweep)
        best = sweep.best.metric if sweep.best else None
        now = time.monotonic()
        if (best != self._best and now >= self._next - _LINE_SECONDS + 0.5) or now >= self._next:
            self._best, self._next = best, now + _LINE_SECONDS
            print(f"{sweep.id}: {_line(sweep, self._board.rate, self._board.trials.values())}", flush=True)

    def end(self, sweep: SweepInfo, trials: Iterable[TrialResult]) -> None:
        """Print the final state and the winning configuration."""
        self._warn(sweep, last=True)
        trials = list(trials)
        for line in self._failures.alike():
            print(f"{sweep.id}: {line}", flush=True)
        reason = f" ({sweep.reason})" if sweep.reason else ""
        took = duration(elapsed(sweep, _now()))
        winner = winner_text(sweep) or best_text(sweep)
        print(f"{sweep.id}: {sweep.state}{reason} after {took}{seed_text(sweep)}", flush=True)
        print(f"{sweep.id}: {winner}", flush=True)

    def close(self) -> None:
        """Do nothing."""

    def _warn(self, sweep: SweepInfo, *, last: bool = False) -> None:
        for text, level in self._failures.take(sweep, last=last):
            print(text if level == TRACEBACK else f"{sweep.id}: {text}", flush=True)


_drawn: tuple[object, str] | None = None  # the cell and the sweep of the final table that was drawn last


def drawn_here(sweep: str) -> bool:
    """Return whether a sweep's final table is in the output of the running notebook cell."""
    return _drawn is not None and _drawn == (_cell(), sweep)


class NotebookDisplay:
    """A table in the cell's output that is redrawn."""

    def __init__(self, failures: Failures, page: str = "") -> None:
        ipython: Any = importlib.import_module("IPython.display")
        self._html = ipython.HTML
        self._board, self._failures, self._page = _Board(), failures, page
        self._next = 0.0
        self._behind = False  # whether an update is not drawn yet
        first = self._html("<p>waiting for the first trial</p>")
        self._handle: Any = ipython.display(first, display_id=True)

    def update(self, update: Update) -> None:
        """Draw the table, at most twice a second."""
        sweep = self._board.take(update)
        now = time.monotonic()
        self._behind = now < self._next
        if not self._behind:
            self._next = now + _PAGE_SECONDS
            self._draw(sweep, self._board.trials.values(), self._board.rate)

    def end(self, sweep: SweepInfo, trials: Iterable[TrialResult]) -> None:
        """Draw the table for the last time."""
        global _drawn
        self._behind = False
        self._draw(sweep, trials, 0.0, last=True)
        _drawn = (_cell(), sweep.id)

    def close(self) -> None:
        """Draw the latest update, for example when an interrupt paused the sweep."""
        if self._behind and self._board.sweep is not None:
            self._behind = False
            self._draw(self._board.sweep, self._board.trials.values(), 0.0)

    def _draw(self, sweep: SweepInfo, trials: Iterable[TrialResult], rate: float, *, last: bool = False) -> None:
        self._failures.take(sweep, last=last)
        page = html_of(sweep, trials, rate, tracebacks=self._failures.tracebacks, page=self._page)
        self._handle.update(self._html(page))


def html_of(
    sweep: SweepInfo,
    trials: Iterable[TrialResult],
    rate: float = 0.0,
    *,
    tracebacks: Mapping[int, str] | None = None,
    page: str = "",
) -> str:
    """Return a sweep and its most informative trials as HTML, with the tracebacks of trials by number.

    `page` is the address of the sweep's page in the dashboard, to which its name links.
    """
    esc = html.escape
    trials = list(trials)
    shown = telling(sweep, trials)
    best = sweep.best
    head, rows = page_table(sweep, shown)
    bold = next((row for row, t in enumerate(shown) if best and t.number == best.number), None)
    table = html_table.table(head, rows, bold=bold) if rows else ""
    failures = Failures()
    notes = "".join(f"<p>{esc(text)}</p>" for text, _ in failures.take(sweep))
    notes += "".join(f"<p>{esc(text)}</p>" for text in failures.alike())
    notes += "".join(
        f"<details open><summary>{_trace_title(trial, trace)}</summary><pre>{esc(trace)}</pre></details>"
        for trial, trace in (tracebacks or {}).items()
    )
    done = share(sweep)
    bar = f'<progress value="{done:.3f}" max="1"></progress> ' if done is not None else ""
    first, *others = map(esc, _parts(sweep, rate, trials))
    if sweep.over and (winner := winner_text(sweep)):
        table += f"<p><b>{esc(winner)}</b></p>"
    name = f"<b>{esc(sweep.id)}</b>"
    if page:
        name = f'<a href="{esc(page)}" target="_blank" rel="noopener">{name}</a>'
    return f"<div><p>{bar}{name} {'<br>'.join([first, *others])}</p>{notes}{table}</div>"


def _trace_title(trial: int, trace: str) -> str:
    return f"traceback of trial {trial}" if trace.startswith("Traceback") else f"what trial {trial} wrote last"


def _line(sweep: SweepInfo, rate: float, trials: Iterable[TrialResult] = ()) -> str:
    """Return the state of a sweep in one line."""
    return "; ".join(_parts(sweep, rate, trials))


def _parts(sweep: SweepInfo, rate: float, trials: Iterable[TrialResult]) -> list[str]:
    """Return the state of a sweep in parts, beginning with the name of the state."""
    trials = list(trials)
    reason = f" ({sweep.reason})" if sweep.reason else ""
    parts = [
        f"{sweep.state}{reason}, {duration(elapsed(sweep, _now()))}{seed_text(sweep)}{memory_text(sweep)}",
        f"trials: {trials_text(sweep)}",
        f"steps: {steps_text(sweep, rate)}",
        f"best: {best_text(sweep)}",
        *([f"{'devices' if 'held' in held else 'shared'}: {held}"] if (held := held_text(sweep, trials)) else []),
    ]
    if sweep.waiting and not sweep.over:
        parts.append(f"waits: {sweep.waiting}")
    return parts


def _now() -> datetime.datetime:
    return datetime.datetime.now(datetime.timezone.utc)


def _in_notebook() -> bool:
    return type(_shell()).__name__ == "ZMQInteractiveShell"


def _cell() -> object:
    """Return the number of the running notebook cell; None outside a notebook."""
    return getattr(_shell(), "execution_count", None)


def _shell() -> Any:
    ipython = sys.modules.get("IPython")
    return ipython.get_ipython() if ipython is not None else None
