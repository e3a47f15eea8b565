"""Exceptions of trials that are raised again in the client."""

from __future__ import annotations

import pickle
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import outbid as ob
from outbid._core.exception_codec import RemoteTraceback, packed, unpacked
from outbid._core.limits import check_report
from outbid.v1 import event_pb2


class OtherArguments(Exception):
    """Cannot be unpickled: its `__init__` does not take `args`."""

    def __init__(self, code: int, *, why: str) -> None:
        super().__init__(f"{why} ({code})")
        self.code = code


class Holding(ValueError):
    """Cannot be pickled: it has a lock."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.lock, self.kept = threading.Lock(), [1, 2]


class Wordless(Exception):
    """Its `str()` raises an exception."""

    def __str__(self) -> str:
        raise RuntimeError("no")


class Ruined(Exception):
    """It cannot be created again without arguments."""

    def __new__(cls, *args: Any, **given: Any) -> Ruined:
        if not given:
            raise RuntimeError("no")
        return super().__new__(cls, *args)

    def __init__(self, text: str, **given: Any) -> None:
        super().__init__(text)


def raised(error: Exception) -> Exception:
    """Return an exception that was raised."""
    try:
        raise error
    except Exception as caught:
        return caught


ERRORS = [
    (KeyError("x"), KeyError, "'x'"),
    (OtherArguments(3, why="too hot"), OtherArguments, "too hot (3)"),
    (Holding("busy"), Holding, "busy"),
    (ValueError("y" * 1_000_000), ValueError, "y" * 4000),
    (ValueError(np.zeros(100_000)), ValueError, str(np.zeros(100_000))),
    (ValueError("\udcff" * 100_000), ValueError, ("\\udcff" * 600)[:4000]),
    (ValueError(threading.Lock()), ValueError, "<unlocked _thread.lock object"),
    (UnicodeDecodeError("utf-8", b"\xff", 0, 1, "bad"), UnicodeDecodeError, "can't decode byte 0xff"),
    (OSError(2, "No such file", "/nowhere"), FileNotFoundError, "No such file: '/nowhere'"),
    (ob.LimitError("full", 2.0), ob.LimitError, "full"),
    (Ruined("gone", x=1), ob.TrialError, "Ruined: gone"),
]


@pytest.mark.parametrize(("error", "kind", "text"), ERRORS, ids=[type(error).__name__ for error, *_ in ERRORS])
def test_every_exception_reaches_the_caller(error: Exception, kind: type[Exception], text: str) -> None:
    note = packed(raised(error))
    check_report("note", event_pb2.Report(attributes={"raised": note}))
    made = unpacked(note)
    assert type(made) is kind and text in str(made)
    assert isinstance(made.__cause__, RemoteTraceback)
    assert "Traceback (most recent call last)" in str(made.__cause__) and "raise error" in str(made.__cause__)


def test_what_an_exception_holds_is_kept_as_far_as_it_can_be() -> None:
    made: Any = unpacked(packed(raised(Holding("busy"))))
    assert made.kept == [1, 2] and not hasattr(made, "lock")
    made = unpacked(packed(raised(OtherArguments(3, why="too hot"))))
    assert made.code == 3
    assert type(unpacked(packed(Wordless()))) is Wordless
    error = pickle.loads(pickle.dumps(unpacked(packed(raised(Ruined("gone", x=1))))))
    assert (error.type_name, error.message) == ("Ruined", "gone")


def test_a_class_of_a_lost_module_is_named(tmp_path: Path) -> None:
    (tmp_path / "lost.py").write_text("class Lost(Exception):\n    pass\n")
    code = "import lost; from outbid._core.exception_codec import packed; print(packed(lost.Lost('where')))"
    note = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True).stdout
    made = unpacked(note)
    assert isinstance(made, ob.TrialError) and str(made) == "Lost: where"
