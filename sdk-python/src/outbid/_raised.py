"""Exceptions on their way from a trial to who waits for the sweep: noted as text."""

from __future__ import annotations

import base64


def packed(error: Exception) -> str:
    """Return an exception as text, whole if it can be pickled."""
    import cloudpickle

    try:
        return base64.b64encode(cloudpickle.dumps(error)).decode()
    except Exception:
        return base64.b64encode(cloudpickle.dumps(RuntimeError(f"{type(error).__name__}: {error}"))).decode()


def unpacked(text: str) -> Exception:
    """Return the exception that `packed` packed."""
    import pickle

    error: Exception = pickle.loads(base64.b64decode(text))
    return error
