"""Exceptions on their way from a trial to who waits for the sweep: noted as text."""

from __future__ import annotations

import base64
from typing import Final

_MOST: Final = 30_000  # bytes of an exception that travel with it; the rest of the report is for other notes


def packed(error: Exception) -> str:
    """Return an exception as text, whole if it can be pickled and is not too large for a note."""
    import cloudpickle

    try:
        whole = base64.b64encode(cloudpickle.dumps(error)).decode()
        if len(whole) <= _MOST:
            return whole
    except Exception:
        pass
    said = f"{type(error).__name__}: {error}"[: _MOST // 6]
    return base64.b64encode(cloudpickle.dumps(RuntimeError(said))).decode()


def unpacked(text: str) -> Exception:
    """Return the exception that `packed` packed.

    It is unpickled, which runs code of the text's writer: give it only what a sweep of this program noted.
    """
    import pickle

    error: Exception = pickle.loads(base64.b64decode(text))
    return error
