"""Shows failures of trials to the user: each kind once, with its traceback and the number of such trials."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

from outbid._results.model import Note, SweepInfo
from outbid.rpc import Patience

TRACEBACK = "traceback"
"""The level of a text that is a traceback."""

_LAST = 5  # lines shown of a program's output
_TRIES = 20  # attempts to fetch a traceback, after which the trial has none, such as one that was killed
LATE_LOG = 2.0  # maximum seconds that a log arrives after the news of its trial
_EXCEPTION = re.compile(r"[A-Za-z_][\w.]*(: |$)")  # a Python exception in one line
_START = "Traceback (most recent call last):"
_GROUP = "  + Exception Group Traceback (most recent call last):"
_OF_GROUP = re.compile(r" +[|+].*")
_GROUP_END = re.compile(r" +\+-{20,}")  # also ends an inner group, which may end together with its outer one
_JOINS = (
    "The above exception was the direct cause of the following exception:",
    "During handling of the above exception, another exception occurred:",
)
_EXIT = re.compile(r"exited with code|killed by|out of memory")  # reasons of a program, which has no traceback
_AROUND = re.compile(
    r"(?:failed for good: )?(.*?)(?:: it starts again .*|; it failed twice .*|: it fails unless .*)?", re.DOTALL
)


class Failures:
    """The warnings and errors of one sweep. The first of each kind is shown; other trials with it are counted.

    `explain` returns a trial's traceback, or the last lines that a program wrote to stderr; "" if it has none yet.
    """

    def __init__(self, explain: Callable[[int], str] | None = None) -> None:
        self._explain = explain
        self._noted: set[tuple[str, int | None, object]] = set()
        self._trials: dict[str, list[int]] = {}  # trials by kind, the first one being the one shown
        self._exited: set[int] = set()  # trials of programs that exited: their output arrives soon
        self._owed: dict[int, int] = {}  # trials whose traceback has not arrived, and how often it was requested
        self.tracebacks: dict[int, str] = {}
        """The traceback of the first trial of each kind, by trial."""

    def take(self, sweep: SweepInfo, *, last: bool = False) -> list[tuple[str, str]]:
        """Return new texts with their levels, which are warning, error and TRACEBACK.

        With `last`, wait briefly for tracebacks that have not arrived, because a log arrives after the news of its
        trial.
        """
        told = []
        for note in sweep.notes:
            key = (note.text, note.trial, note.time)
            if note.level == "info" or key in self._noted:
                continue
            self._noted.add(key)
            if self._first(note):
                told.append((note_text(note), note.level))
        told += [(trace, TRACEBACK) for trace in self._explained()]
        waiting = Patience(LATE_LOG)
        while last and self._owed.keys() - self._exited and self._explain and waiting.more():
            told += [(trace, TRACEBACK) for trace in self._explained()]
        return told

    def alike(self) -> list[str]:
        """Return a line for each kind of failure that several trials have in common."""
        return [
            f"{count} other trial{'s' if count > 1 else ''} alike: {what}"
            for what, trials in self._trials.items()
            if (count := len(trials) - 1)
        ]

    def _first(self, note: Note) -> bool:
        """Return whether a note is the first of its kind, or does not belong to a trial."""
        if note.trial is None:
            return True
        what = kind_of(note.text)
        known = what in self._trials
        trials = self._trials.setdefault(what, [])
        if not known and (_EXCEPTION.match(what) or _EXIT.match(what)):
            self._owed[note.trial] = 0
            if _EXIT.match(what):
                self._exited.add(note.trial)
        if note.trial not in trials:
            trials.append(note.trial)
        return not known

    def _explained(self) -> list[str]:
        found = {trial: trace for trial in self._owed if self._explain and (trace := self._explain(trial))}
        self._owed = {t: n + 1 for t, n in self._owed.items() if t not in found and n < _TRIES}
        self.tracebacks.update(found)
        return list(found.values())


def kind_of(text: str) -> str:
    """Return the problem in a note, without what happens to the trial."""
    match = _AROUND.fullmatch(text)
    return match.group(1) if match else text


def note_text(note: Note) -> str:
    """Return a note in one line."""
    where = f"trial {note.trial}: " if note.trial is not None else ""
    return f"{note.level}: {where}{note.text}"


def last_lines(lines: Iterable[tuple[str, str]]) -> str:
    """Return the last five stderr lines of a trial's newest attempt; `lines` are pairs of stream and line."""
    found: list[str] = []
    for stream, line in lines:
        if stream == "outbid":  # another attempt begins
            found = []
        elif stream == "stderr" and line.strip():
            found.append(line)
    return "\n".join(found[-_LAST:])


def last_traceback(lines: Iterable[str]) -> str:
    """Return the last traceback in the output of a trial, from its beginning to the line of the exception.

    It includes the tracebacks of the exceptions that caused it.
    """
    found: list[str] = []
    after: list[str] = []  # the lines after an exception, which may join it to the next
    inside = joined = group = False
    for line in lines:
        group = group and _OF_GROUP.fullmatch(line) is not None
        if line.startswith((_START, _GROUP)) and not group:
            found, inside = [*found, *after, line] if joined else [line], True
            after, joined, group = [], False, line.startswith(_GROUP)
        elif group:
            found.append(line)
            inside = not _GROUP_END.fullmatch(line)
        elif inside:
            found.append(line)
            inside = line.startswith((" ", "\t")) or not line.strip()
        else:
            after.append(line)
            joined = "".join(after) in _JOINS  # surrounded by empty lines
    return "\n".join(found) if found and not inside and not joined else ""
