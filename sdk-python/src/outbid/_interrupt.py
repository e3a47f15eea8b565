"""What Ctrl-C does while a sweep is waited for: nothing is lost, and it is said how to go on."""

from __future__ import annotations

import contextlib
import os
import shlex
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol

from outbid._connection import Connection
from outbid._display import Display
from outbid._errors import OutbidError
from outbid._model import SweepInfo, Update
from outbid._server import DATA

_SAID = "outbid_said"  # an attribute of interrupts after which all was said


class Identified(Protocol):
    """A sweep."""

    @property
    def id(self) -> str:
        """Its id."""


class Followed(Identified, Protocol):
    """The sweep that is waited for."""

    def info(self) -> SweepInfo:
        """Return how it stands."""

    def pause(self) -> None:
        """Pause it."""

    def watch(self) -> Iterator[Update]:
        """Yield its news."""


def interrupted(handle: Followed, client: Connection, display: Display, *, restore: str = "") -> KeyboardInterrupt:
    """Pause a sweep whose server ends with this program, leave another running; return what is to be raised.

    `restore` is the Python that goes on with it, where that is not attaching to the sweep.
    """
    try:
        if not client.passing:
            display.close()  # what is said stands below the table
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
        f"{handle.id} goes on at {client.url}",
        f"follow it with {attached} or `{shell} watch {handle.id}`",
        f"stop it with {go_on(handle, client, 'stop()')} or `{shell} stop {handle.id}`",
    )


def _saved(handle: Followed, display: Display) -> bool:
    """Return, once no trial runs any more, whether the sweep is paused rather than over."""
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
    return _told(f"{handle.id} {state}", f"go on with {attached}", f"or {shell}")


def _ended(handle: Followed, client: Connection, restore: str) -> KeyboardInterrupt:
    return _told(f"{handle.id} has ended", f"its result: {restore or go_on(handle, client, 'result()')}")


def go_on(handle: Identified, client: Connection, call: str) -> str:
    """Return the Python that attaches to a sweep from a program of its own, and calls what is to be called."""
    if client.data is None:
        named = os.environ.get("OUTBID_URL") == client.url
        start = "ob" if named else f"ob.connect({client.url!r})"
    else:
        start = "ob" if client.data == Path(DATA).resolve() else f"ob.connect(data={str(client.data)!r})"
    return f"{start}.attach({handle.id!r}).{call}"


def _server_flag(client: Connection) -> str:
    """Return the flag by which the command line finds the server, if it needs one."""
    if os.environ.get("OUTBID_URL") == client.url or client.data == Path(DATA).resolve():
        return ""
    return f" --server {client.url}"


def _lives_on() -> bool:
    """Return whether Python goes on after an interrupt: in a notebook or at a prompt."""
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
    """Add a line to what an interrupt says, and print it if the rest was printed."""
    interrupt.args = (f"{interrupt}; {line}",)
    if _SAID in interrupt.__dict__:
        _say(f"  {line}")


def _print_no_traceback(interrupt: KeyboardInterrupt) -> None:
    """Have an interrupt end the program, or a notebook's cell, without a traceback: all was said already.

    It is not a class of its own, because Python exits with the code of an interrupt for KeyboardInterrupt itself alone.
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
    """What is called with an exception that ends the program."""

    def __init__(self, before: Callable[..., Any]) -> None:
        self._before = before

    def __call__(self, kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        if _SAID not in error.__dict__:
            self._before(kind, error, trace)


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
