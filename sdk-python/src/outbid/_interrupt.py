"""What Ctrl-C does while a sweep is waited for: nothing is lost, and it is said how to go on."""

from __future__ import annotations

import contextlib
import os
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from outbid import _client
from outbid._display import Display
from outbid._errors import OutbidError

if TYPE_CHECKING:
    from outbid._client import Client
    from outbid._handle import SweepHandle


def interrupted(handle: SweepHandle, display: Display) -> KeyboardInterrupt:
    """Pause a sweep whose server ends with this program, leave another running; return what is to be raised."""
    try:
        if not handle._client.passing:
            display.close()  # what is said stands below the table
            return _leave(handle)
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
            handle._client.hurry()
            saved = False
        display.close()
        return _paused(handle, saved)
    except OutbidError as error:
        display.close()
        return _told(f"{handle.id} could not be paused ({error})", go_on(handle, "resume().wait(display=True)"))


def _leave(handle: SweepHandle) -> KeyboardInterrupt:
    attached, shell = go_on(handle, "wait(display=True)"), f"outbid{_server_flag(handle._client)}"
    return _told(
        f"{handle.id} goes on at {handle._client.url}",
        f"follow it with {attached} or `{shell} watch {handle.id}`",
        f"stop it with {go_on(handle, 'stop()')} or `{shell} stop {handle.id}`",
    )


def _saved(handle: SweepHandle, display: Display) -> bool:
    """Return, once no trial runs any more, whether the sweep is paused rather than over."""
    for update in handle.watch():
        display.update(update)
        if update.sweep.state == "paused" and not update.sweep.counts.get("running"):
            return True
    return False


def _paused(handle: SweepHandle, saved: bool) -> KeyboardInterrupt:
    client = handle._client
    if not saved and not _hurried(client) and handle.info().over:
        return _told(f"{handle.id} has ended", f"its result: {go_on(handle, 'result()')}")
    state = "is paused, and its trials are saved" if saved else "is being paused"
    shell = f"`outbid{_server_flag(client)} resume {handle.id}`"
    if not _lives_on():
        # The server ends with this program.
        data = client.data or Path(_client.DATA)
        place = "" if data == Path(_client.DATA).resolve() else f" --data {shlex.quote(str(data))}"
        shell = f"`outbid up{place}` and, in another shell, `outbid resume {handle.id}`"
    return _told(f"{handle.id} {state}", f"go on with {go_on(handle, 'resume().wait(display=True)')}", f"or {shell}")


def go_on(handle: SweepHandle, call: str) -> str:
    """Return the Python that attaches to a sweep from a program of its own, and calls what is to be called."""
    client = handle._client
    if client.data is None:
        named = os.environ.get("OUTBID_URL") == client.url
        start = "ob" if named else f"ob.connect({client.url!r})"
    else:
        start = "ob" if client.data == Path(_client.DATA).resolve() else f"ob.connect(data={str(client.data)!r})"
    return f"{start}.attach({handle.id!r}).{call}"


def _server_flag(client: Client) -> str:
    """Return the flag by which the command line finds the server, if it needs one."""
    if os.environ.get("OUTBID_URL") == client.url or client.data == Path(_client.DATA).resolve():
        return ""
    return f" --server {client.url}"


def _hurried(client: Client) -> bool:
    return bool(getattr(client._address, "hurry", False))


def _lives_on() -> bool:
    """Return whether Python goes on after an interrupt: in a notebook or at a prompt."""
    ipython = sys.modules.get("IPython")
    prompt = ipython is not None and ipython.get_ipython() is not None
    return prompt or hasattr(sys, "ps1") or bool(sys.flags.interactive)


def _told(*lines: str) -> KeyboardInterrupt:
    text = "\n".join([lines[0], *(f"  {line}" for line in lines[1:])])
    _say(text)
    return KeyboardInterrupt(f"{lines[0]}; {lines[1]}")  # the last line of a traceback


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
