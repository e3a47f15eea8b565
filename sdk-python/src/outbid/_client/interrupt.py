"""Handles Ctrl-C while a program waits for a sweep: saves trials if needed, and prints how to continue."""

from __future__ import annotations

import contextlib
import os
import shlex
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol

from outbid._client.connection import Connection
from outbid._client.local_server import DATA
from outbid._core.errors import OutbidError
from outbid._display.display import Display
from outbid._results.model import SweepInfo, Update

_SAID = "outbid_said"  # attribute of interrupts whose message was printed completely


class Identified(Protocol):
    """An object with a sweep's id."""

    @property
    def id(self) -> str:
        """The sweep's id."""


class Followed(Identified, Protocol):
    """A sweep that the program waits for."""

    def info(self) -> SweepInfo:
        """Return the sweep's current state."""

    def pause(self) -> None:
        """Pause the sweep."""

    def watch(self) -> Iterator[Update]:
        """Yield the sweep's updates."""


def interrupted(handle: Followed, client: Connection, display: Display, *, restore: str = "") -> KeyboardInterrupt:
    """Pause a sweep whose server ends with this program, or leave it running; return the exception to raise.

    `restore` is the Python code that continues the sweep, if that is not attaching to it.
    """
    try:
        if not client.passing:
            display.close()  # so that messages are printed below the table
            return _leave(handle, client, restore)
        asked = False
        try:
            _say(f"{handle.id}: saving its trials and pausing; Ctrl-C again does not wait for them")
            handle.pause()
            asked = True
            saved = _saved(handle, display)
        except KeyboardInterrupt:
            if not asked:
                with contextlib.suppress(OutbidError):
                    handle.pause()
            client.hurry()
            saved = False
        display.close()
        return _paused(handle, client, saved, restore)
    except OutbidError as error:
        display.close()
        with contextlib.suppress(OutbidError):
            if handle.info().over:
                return _ended(handle, client, restore)
        return _told(f"{handle.id} could not be paused ({error})", go_on(handle, client, "resume().wait(display=True)"))


def _leave(handle: Followed, client: Connection, restore: str) -> KeyboardInterrupt:
    attached, shell = restore or go_on(handle, client, "wait(display=True)"), f"outbid{_server_flag(client)}"
    return _told(
        f"{handle.id} continues at {client.url}",
        f"follow it with {attached} or `{shell} watch {handle.id}`",
        f"stop it with {go_on(handle, client, 'stop()')} or `{shell} stop {handle.id}`",
    )


def _saved(handle: Followed, display: Display) -> bool:
    """Wait until no trial runs; return whether the sweep is paused rather than over."""
    for update in handle.watch():
        display.update(update)
        if update.sweep.state == "paused" and not update.sweep.counts.get("running"):
            return True
    return False


def _paused(handle: Followed, client: Connection, saved: bool, restore: str) -> KeyboardInterrupt:
    if not saved and not client.hurried and handle.info().over:
        return _ended(handle, client, restore)
    state = "is paused, and its trials are saved" if saved else "is being paused"
    shell = f"`outbid{_server_flag(client)} resume {handle.id}`"
    if not _lives_on():
        # The server ends with this program.
        data = client.data or Path(DATA)
        place = "" if data == Path(DATA).resolve() else f" --data {shlex.quote(str(data))}"
        shell = f"`outbid up{place}` and, in another shell, `outbid resume {handle.id}`"
    attached = restore or go_on(handle, client, "resume().wait(display=True)")
    return _told(f"{handle.id} {state}", f"continue with {attached}", f"or {shell}")


def _ended(handle: Followed, client: Connection, restore: str) -> KeyboardInterrupt:
    return _told(f"{handle.id} has ended", f"its result: {restore or go_on(handle, client, 'result()')}")


def go_on(handle: Identified, client: Connection, call: str) -> str:
    """Return Python code that attaches to a sweep from another program and makes a call."""
    if client.data is None:
        named = os.environ.get("OUTBID_URL") == client.url
        start = "ob" if named else f"ob.connect({client.url!r})"
    else:
        start = "ob" if client.data == Path(DATA).resolve() else f"ob.connect(data={str(client.data)!r})"
    return f"{start}.attach({handle.id!r}).{call}"


def _server_flag(client: Connection) -> str:
    """Return the flag that lets the command line find the server, or "" if it needs none."""
    if os.environ.get("OUTBID_URL") == client.url or client.data == Path(DATA).resolve():
        return ""
    return f" --server {client.url}"


def _lives_on() -> bool:
    """Return whether Python continues after an interrupt: in a notebook or at a prompt."""
    ipython = sys.modules.get("IPython")
    prompt = ipython is not None and ipython.get_ipython() is not None
    return prompt or hasattr(sys, "ps1") or bool(sys.flags.interactive)


def _told(*lines: str) -> KeyboardInterrupt:
    text = "\n".join([lines[0], *(f"  {line}" for line in lines[1:])])
    _say(text)
    interrupt = KeyboardInterrupt(f"{lines[0]}; {lines[1]}")
    _print_no_traceback(interrupt)
    return interrupt


def tell_more(interrupt: KeyboardInterrupt, line: str) -> None:
    """Append a line to an interrupt's message, and print it if the message was printed."""
    interrupt.args = (f"{interrupt}; {line}",)
    if _SAID in interrupt.__dict__:
        _say(f"  {line}")


def _print_no_traceback(interrupt: KeyboardInterrupt) -> None:
    """Make an interrupt end the program or a notebook's cell without a traceback, because its message was printed.

    It cannot be a subclass, because Python's exit code is that of an interrupt only for KeyboardInterrupt itself.
    """
    interrupt.__dict__[_SAID] = True
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    if shell is not None:
        shell.set_custom_exc((KeyboardInterrupt,), _in_cell)
    if not isinstance(sys.excepthook, _Hook):
        sys.excepthook = _Hook(sys.excepthook)


def _in_cell(shell: Any, kind: type[BaseException], error: BaseException, trace: Any, **_: Any) -> None:
    if _SAID not in error.__dict__:
        shell.showtraceback((kind, error, trace))


class _Hook:
    """An excepthook that ignores such interrupts."""

    def __init__(self, before: Callable[..., Any]) -> None:
        self._before = before

    def __call__(self, kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        if _SAID not in error.__dict__:
            self._before(kind, error, trace)


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
