"""Serialises a trial's exception for re-raising in the client, as text that fits into an attribute."""

from __future__ import annotations

import base64
import json
import pickle
import traceback
from collections.abc import Callable
from typing import Any, Final

from outbid._core.errors import TrialError, as_text

_WHOLE: Final = 16_000  # maximum bytes of the pickled exception
_TRACE: Final = 12_000  # maximum characters of its traceback, which is cut in the middle
_MESSAGE: Final = 4_000  # maximum characters of its message


class RemoteTraceback(Exception):
    """The cause of an exception that a trial raised: the traceback in the trial's process, as text."""

    def __str__(self) -> str:
        return f'\n"""\n{self.args[0]}"""'


def packed(error: Exception) -> str:
    """Return an exception as text: what can be pickled of it, its type's name, message and traceback."""
    trace = as_text("".join(traceback.format_exception(type(error), error, error.__traceback__)))
    if len(trace) > _TRACE:  # in a long message or stack, both ends are most informative
        trace = f"{trace[: _TRACE // 2]}\n...\n{trace[-_TRACE // 2 :]}"
    found = {"type": type(error).__name__, "message": _described(error), "trace": trace}
    if whole := pickled(error, _WHOLE):
        found["pickle"] = base64.b64encode(whole).decode()
    return json.dumps(found, ensure_ascii=False)


def unpacked(text: str) -> Exception:
    """Return the exception in the text that `packed` returned, or a TrialError if it cannot be recreated here.

    Its cause is a RemoteTraceback. Unpickling runs code of the text's writer, so pass only text from this program's
    sweeps.
    """
    found = json.loads(text)
    error: Any = None
    if "pickle" in found:
        try:
            error = pickle.loads(base64.b64decode(found["pickle"]))
        except Exception:  # its class or its contents are not available here
            error = None
    if not isinstance(error, Exception):
        error = TrialError(found["type"], found["message"], found["trace"])
    error.__cause__ = RemoteTraceback(found["trace"])
    made: Exception = error
    return made


def pickled(error: BaseException, most: int | None = None) -> bytes:
    """Return a pickled exception without parts that cannot be pickled.

    Returns b"" if the pickle has more than `most` bytes or cannot be read.
    """
    for dump in (_as_it_is, _rebuilding):
        try:
            whole = dump(error)
            if (most is None or len(whole) <= most) and type(pickle.loads(whole)) is type(error):
                return whole
        except (Exception, SystemExit):  # a `__reduce__` may call anything
            continue
    return b""


def _as_it_is(error: BaseException) -> bytes:
    import cloudpickle

    pickled: bytes = cloudpickle.dumps(error)
    return pickled


def _rebuilding(error: BaseException) -> bytes:
    """Pickle an exception's contents, if its `__init__` has other arguments or a part cannot be pickled."""
    import cloudpickle

    args = tuple(_small(value, _described) for value in error.args)
    members = {name: _small(value, None) for name, value in vars(error).items()}
    kept = {name: value for name, value in members.items() if value is not None}
    pickled: bytes = cloudpickle.dumps(_Rebuilt(type(error), args, kept))
    return pickled


class _Rebuilt:
    """A pickle of it recreates an exception without calling the exception's `__init__`."""

    def __init__(self, *parts: Any) -> None:
        self._parts = parts

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, self._parts


def _rebuild(kind: type[BaseException], args: tuple[Any, ...], members: dict[str, Any]) -> BaseException:
    error = kind.__new__(kind, *args)
    error.args = args
    vars(error).update(members)
    return error


def _small(value: Any, instead: Callable[[Any], str] | None) -> Any:
    """Return a part of an exception, or `instead` of it if it is large or cannot be pickled."""
    import cloudpickle

    try:
        pickled = cloudpickle.dumps(value)
        if len(pickled) <= _MESSAGE:
            pickle.loads(pickled)
            return value
    except Exception:
        pass
    return instead(value) if instead is not None else None


def _described(value: Any) -> str:
    """Return the text of an exception or a part of it, cut."""
    try:
        return as_text(str(value))[:_MESSAGE]
    except Exception:
        return f"<{type(value).__name__}>"
