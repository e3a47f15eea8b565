"""What went wrong, said where the user looks: each kind once, with its traceback, and how many trials are alike."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

from outbid._model import Note, SweepInfo
from outbid.rpc import Patience

TRACEBACK = "traceback"
"""The level of a text that is a traceback."""

_LAST = 5  # lines of a program that are shown
_TRIES = 20  # after which a trial has printed no traceback, as one that was killed
LATE_LOG = 2.0  # seconds that a log may come after the news of its trial
_EXCEPTION = re.compile(r"[A-Za-z_][\w.]*(: |$)")  # a Python exception, as one line
_START = "Traceback (most recent call last):"
_GROUP = "  + Exception Group Traceback (most recent call last):"
_OF_GROUP = re.compile(r" +[|+].*")
_GROUP_END = re.compile(r" +\+-{20,}")  # of an inner group too, which may end where its outer one does
_JOINS = (
    "The above exception was the direct cause of the following exception:",
    "During handling of the above exception, another exception occurred:",
)
_EXIT = re.compile(r"exited with code|killed by|out of memory")  # of a program, which has no traceback
_AROUND = re.compile(
    r"(?:failed for good: )?(.*?)(?:: it starts again .*|; it failed twice .*|: it fails unless .*)?", re.DOTALL
)


class Failures:
    """The notes of one sweep that warn: the first of each kind is told, and other trials of it are counted.

    `explain` returns a trial's traceback, or the last lines that a program wrote to stderr; "" while there is none.
    """

    def __init__(self, explain: Callable[[int], str] | None = None) -> None:
        self._explain = explain
        self._noted: set[tuple[str, int | None, object]] = set()
        self._trials: dict[str, list[int]] = {}  # by what they have in common, the first told of first
        self._exited: set[int] = set()  # trials of programs that exited: what they wrote is there soon
        self._owed: dict[int, int] = {}  # trials whose traceback has not come yet, and how often it was asked for
        self.tracebacks: dict[int, str] = {}
        """Of the first trial that failed in each way."""

    def take(self, sweep: SweepInfo, *, last: bool = False) -> list[tuple[str, str]]:
        """Return what is new to tell: texts with their levels, which are warning, error and TRACEBACK.

        With `last` tracebacks that have not come yet are waited for, a moment at most: the log comes after the news.
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
        """Return a line for each thing that several trials have in common."""
        return [
            f"{count} other trial{'s' if count > 1 else ''} alike: {what}"
            for what, trials in self._trials.items()
            if (count := len(trials) - 1)
        ]

    def _first(self, note: Note) -> bool:
        """Return whether a note is the first of its kind, or of no trial."""
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
    """Return what a note says went wrong, without what becomes of the trial."""
    match = _AROUND.fullmatch(text)
    return match.group(1) if match else text


def note_text(note: Note) -> str:
    """Return a note in one line."""
    where = f"trial {note.trial}: " if note.trial is not None else ""
    return f"{note.level}: {where}{note.text}"


def last_lines(lines: Iterable[tuple[str, str]]) -> str:
    """Return the last five lines on stderr of a trial's newest attempt, among lines of a log with their streams."""
    found: list[str] = []
    for stream, line in lines:
        if stream == "outbid":  # another attempt begins
            found = []
        elif stream == "stderr" and line.strip():
            found.append(line)
    return "\n".join(found[-_LAST:])


def last_traceback(lines: Iterable[str]) -> str:
    """Return the last traceback among lines that a trial printed, from its beginning to the line of the exception.

    It begins with those of the exceptions that led to its own.
    """
    found: list[str] = []
    after: list[str] = []  # an exception: what may join it to the next
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
            joined = "".join(after) in _JOINS  # among empty lines
    return "\n".join(found) if found and not inside and not joined else ""
