"""Calls that Ctrl-C cannot interrupt halfway."""

from __future__ import annotations

import signal
import sys
import threading
import types
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest

import outbid as ob
from fake_server import FakeServer, make_trial
from outbid.rpc._uninterruptible import AHEAD, Stream, aside

PATIENCE = 60.0


class Counting:
    """A call that answers 0, 1, ... up to `end`; `more` counts the answers that were read."""

    def __init__(self, end: int, error: Exception | None = None) -> None:
        self.more, self.cancelled = threading.Semaphore(0), threading.Event()
        self._end, self._error = end, error

    def __iter__(self) -> Iterator[int]:
        for number in range(self._end):
            self.more.release()
            yield number
        if self._error is not None:
            raise self._error

    def cancel(self) -> None:
        self.cancelled.set()


def test_the_main_thread_runs_none_of_grpcs_code(server: FakeServer) -> None:
    """An interrupt in gRPC's code can leave a lock of the channel taken, which blocks every later call."""
    seen: set[str] = set()
    at = str(Path(grpc.__file__).parent)

    def look(frame: types.FrameType, event: str, _: object) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(at):
            seen.add(frame.f_code.co_name)

    client = ob.connect(server.url)  # this loads gRPC and creates a channel without a call
    handle = client.attach("s-1")
    server.tell_news(make_trial(0))
    sys.setprofile(look)
    try:
        next(iter(handle.watch()))
        handle.pause()
        assert handle.info().id == "s-1"
        server.fail = [(grpc.StatusCode.NOT_FOUND, "gone")]
        with pytest.raises(ob.NotFoundError):
            handle.reports()
    finally:
        sys.setprofile(None)
        client.close()
    assert not seen, seen


def test_an_interrupt_ends_the_waiting_and_not_the_work() -> None:
    done = threading.Event()
    waits = threading.Event()

    def work() -> None:
        main = threading.main_thread().ident
        assert main is not None
        # Python loses an interrupt that arrives in a destructor, such as that of an old thread when this one starts.
        while sys._current_frames()[main].f_code.co_name != "_next":
            waits.wait(0.001)
        signal.pthread_kill(main, signal.SIGINT)
        waits.wait(PATIENCE)
        done.set()

    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # shells start jobs that ignore interrupts
    try:
        with pytest.raises(KeyboardInterrupt):
            aside(work)
    finally:
        signal.signal(signal.SIGINT, before)
    assert not done.is_set()
    waits.set()
    assert done.wait(PATIENCE)


def test_what_the_work_raises_is_raised() -> None:
    with pytest.raises(ZeroDivisionError):
        aside(lambda: 1 // 0)


def test_a_stream_is_read_as_it_is_taken() -> None:
    call = Counting(100)
    answers = iter(Stream(lambda: call))
    assert next(answers) == 0
    for _ in range(AHEAD + 2):  # one was taken, and one is held until there is space
        assert call.more.acquire(timeout=PATIENCE)
    assert not call.more.acquire(timeout=0.05)
    assert list(answers) == list(range(1, 100))
    assert not call.cancelled.is_set()


def test_a_stream_that_nobody_wants_any_more_is_cancelled() -> None:
    call = Counting(100)
    answers = iter(Stream(lambda: call))
    next(answers)
    del answers
    assert call.cancelled.wait(PATIENCE)


def test_a_stream_can_be_cancelled_before_it_begins() -> None:
    call = Counting(3)
    stream = Stream(lambda: call)
    stream.cancel()
    assert list(stream) == [0, 1, 2]  # a real call fails
    assert call.cancelled.is_set()


def test_a_reader_does_something_else_while_nothing_comes() -> None:
    asked: list[float | None] = []
    enough = threading.Event()

    def idle() -> float | None:
        asked.append(None if len(asked) == 3 else 0.01)
        if asked[-1] is None:
            enough.set()
        return asked[-1]

    class Late:
        def __iter__(self) -> Iterator[int]:
            enough.wait(60)
            yield 1

        def cancel(self) -> None:
            pass

    assert list(Stream(Late, idle=idle)) == [1]
    assert asked[:4] == [0.01, 0.01, 0.01, None]


def test_a_stream_fails_after_what_it_gave() -> None:
    taken = []
    with pytest.raises(OSError, match="cut off"):
        for number in Stream(lambda: Counting(2, OSError("cut off"))):
            taken.append(number)
    assert taken == [0, 1]
