"""Runs work that Ctrl-C must not interrupt halfway.

Python raises KeyboardInterrupt in the main thread at any instruction. In gRPC's code that can leave a lock taken, and
every later use of the channel then blocks. Therefore gRPC's code runs in other threads, and the main thread only waits
for their results on queues that are safe to interrupt (`queue.SimpleQueue`; other queues are not).
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator
from typing import Any, Generic, Protocol, TypeAlias, TypeVar

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
_Said: TypeAlias = "queue.SimpleQueue[tuple[T, None] | tuple[None, BaseException]]"

Idle: TypeAlias = Callable[[], float | None]
"""What is called before an answer is waited for; returns the seconds after which it is called again, or None."""

AHEAD = 8
"""Answers of a stream that are read before they are used; a piece of a checkpoint has 1 MiB."""


class Call(Protocol[T_co]):
    """A call with a stream of answers."""

    def __iter__(self) -> Iterator[T_co]:
        """Yield the answers as they arrive."""

    def cancel(self) -> Any:
        """Cancel the call; may be called from any thread."""


def _as_it_is(error: Exception) -> Exception:
    return error


def aside(work: Callable[[], T], explain: Callable[[Exception], Exception] = _as_it_is) -> T:
    """Run `work` in another thread and return its result, or raise its exception converted by `explain`.

    An interrupt ends the waiting, but not the work.
    """
    said: _Said[T] = queue.SimpleQueue()

    def run() -> None:
        try:
            said.put((work(), None))
        except Exception as error:
            said.put((None, explain(error)))

    # Interrupts only reach the main thread.
    if threading.current_thread() is not threading.main_thread() or not _started(run):
        run()
    return _next(said)


class Stream(Generic[T]):
    """The answers of a call that other threads start, read and cancel; at most AHEAD answers are buffered."""

    def __init__(
        self,
        begin: Callable[[], Call[T]],
        explain: Callable[[Exception], Exception] = _as_it_is,
        idle: Idle | None = None,
    ) -> None:
        self._begin, self._explain, self._idle = begin, explain, idle
        self._said: _Said[T] = queue.SimpleQueue()
        self._room: queue.SimpleQueue[None] = queue.SimpleQueue()
        for _ in range(AHEAD):
            self._room.put(None)
        self._call: Call[T] | None = None
        self._cancelled = False

    def cancel(self) -> None:
        """Cancel the call; may be called from any thread, and before the call has started."""
        self._cancelled = True
        self._room.put(None)  # the reader may be waiting for space
        if self._call is not None:
            _started(self._end)

    def __iter__(self) -> Iterator[T]:
        """Yield the answers as they arrive. Raises the error of the call."""
        if not _started(self._read):
            raise RuntimeError("Python is shutting down and cannot start the thread that reads the answers")
        try:
            while True:
                answer = self._await()
                self._room.put(None)
                yield answer
        except _End:
            return
        finally:
            self.cancel()

    def _await(self) -> T:
        """Return the next answer, or raise what the call fails with."""
        while self._idle is not None and (seconds := self._idle()) is not None:
            try:
                return _next(self._said, seconds)
            except queue.Empty:
                pass
        return _next(self._said)

    def _read(self) -> None:
        try:
            self._call = self._begin()
            if self._cancelled:
                self._end()
            for answer in self._call:
                self._room.get()
                self._said.put((answer, None))
            raise _End
        except Exception as error:
            failed = error if isinstance(error, _End) else self._explain(error)
        self._call = None  # deleted before the error is passed on, because gRPC takes a lock in its destructor
        self._said.put((None, failed))

    def _end(self) -> None:
        if (call := self._call) is not None:
            call.cancel()


class _End(Exception):
    """The stream has ended."""


def _next(said: _Said[T], seconds: float | None = None) -> T:
    """Return what is said next, or raise it; queue.Empty if nothing is said within `seconds`."""
    answer, error = said.get(timeout=seconds)
    if error is None:
        return answer  # type: ignore[return-value]
    try:
        raise error
    finally:
        del error  # its traceback holds this frame


def _started(work: Callable[[], object]) -> bool:
    """Run `work` in a new thread. Returns False if Python is shutting down and cannot start threads."""
    try:
        threading.Thread(target=work, name="outbid-call", daemon=True).start()
    except RuntimeError:
        return False
    return True
