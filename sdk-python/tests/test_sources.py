"""The source lines that are sent with a function."""

from __future__ import annotations

import importlib
import linecache
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from fake_worker import FakeWorker
from outbid._core import function_pickle, sources

Cell = Callable[..., Any]


@pytest.fixture
def cell() -> Iterator[Cell]:
    """Run cells like a notebook: they share a namespace, and linecache has their lines."""
    namespace: dict[str, Any] = {"__name__": "__main__"}
    files: list[str] = []

    def run(text: str, file: str, *, known: bool = True) -> Any:
        text = textwrap.dedent(text)
        linecache.cache.pop(file, None)
        if known:
            files.append(file)
            linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
        exec(compile(text, file, "exec"), namespace)
        return namespace.get("train")

    yield run
    for file in files:
        linecache.cache.pop(file, None)


def trace(w: FakeWorker, function: Any) -> str:
    """Return the traceback of a function in a worker's process that has run other functions before."""
    w.function_path = w.function_path.with_name(f"{w.function_path.name}x")
    w.function_path.write_bytes(function_pickle.dump(function))
    w.assign()
    return str(w.hear("ended").traceback)


SCALE = """
def scale(lr):
    return lr / 0  # {}
"""
TRAIN = """
class Model:
    def fit(self):
        return (lambda: scale(1))()  # the model's

def train(trial):
    Model().fit()  # the function's
"""


def test_a_traceback_has_the_lines_of_every_cell(worker: Callable[..., FakeWorker], cell: Cell) -> None:
    cell(SCALE.format("first"), "/nowhere/1.py")
    function = cell(TRAIN, "/nowhere/2.py")
    w = worker()
    w.hear("hello")
    said = trace(w, function)
    for line in ("return lr / 0  # first", "# the model's", "# the function's"):
        assert line in said
    cell(SCALE.format("second"), "/nowhere/3.py")
    said = trace(w, function)
    assert "# second" in said and "# first" not in said and "# the model's" in said


def test_a_line_is_never_anothers(worker: Callable[..., FakeWorker], cell: Cell) -> None:
    raising = "def train(trial):\n    raise KeyError({})\n"
    w = worker()
    w.hear("hello")
    assert "raise KeyError(1)" in trace(w, cell(raising.format(1), "<stdin>"))
    assert "raise KeyError(2)" in trace(w, cell(raising.format(2), "<stdin>"))
    unknown = trace(w, cell(raising.format(3), "<stdin>", known=False))
    assert "in train" in unknown and "raise" not in unknown


def test_a_module_that_was_edited_since_it_was_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    file = tmp_path / "edited_since.py"
    file.write_text("def train(trial):\n    return 1 / 0\n")
    module = importlib.import_module("edited_since")
    try:
        assert sources.gather([module.train.__code__])
        file.write_text("def train(trial):\n    return 1 / 1\n")
        assert not sources.gather([module.train.__code__]), "the file differs from the running code"
    finally:
        del sys.modules["edited_since"]


def test_what_is_installed_on_workers_takes_no_sources_along() -> None:
    blob = function_pickle.dump(textwrap.dedent)
    assert b"sources=0\n" in blob
    assert function_pickle.load(blob) is textwrap.dedent


def test_sources_are_bounded(cell: Cell, monkeypatch: pytest.MonkeyPatch) -> None:
    long = cell("def long(): return 1\n" + "# more\n" * 100, "/nowhere/long.py") or cell("train = long", "<x>")
    short = cell("def train(trial): return long()", "/nowhere/short.py")
    codes = [long.__code__, short.__code__]
    monkeypatch.setattr(sources, "MAX_BYTES", 10_000)
    whole = sources.gather(codes)
    monkeypatch.setattr(sources, "MAX_BYTES", 500)
    less = sources.gather(codes)
    assert len(whole) > len(less) > 0 and less == sources.gather(codes[1:])


def test_a_cell_after_one_with_an_import_from_the_future() -> None:
    text = "def train(trial):\n    def inner(x: int) -> int: return x\n    return inner(1 / 0)\n"
    linecache.cache["/nowhere/f.py"] = (len(text), None, text.splitlines(keepends=True), "/nowhere/f.py")
    names: dict[str, Any] = {}
    exec(compile(text, "/nowhere/f.py", "exec"), names)  # inherits this module's future imports
    try:
        assert sources.gather([names["train"].__code__])
    finally:
        del linecache.cache["/nowhere/f.py"]
