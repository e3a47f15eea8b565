"""Processes that a trial starts find the names of the user's script, whatever the start method."""

from __future__ import annotations

import importlib.util
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from fake_worker import SRC, FakeWorker

HELPERS = """
SIZE = 3
def cube(x): return x ** SIZE
def other(x): return x + SIZE
"""
SCRIPT = """
import concurrent.futures, functools, importlib.util, multiprocessing, sys
import package.inner
from helpers import cube
from outbid._core import function_pickle

OFFSET = 7

class Item:
    def __init__(self, value): self.value = value

class Items:
    def __getitem__(self, i): return Item(i)

def logged(f):
    @functools.wraps(f)
    def wrapper(*args): return f(*args)
    return wrapper

@logged
def square(x): return x * x
def value(item): return item.value
def load(items, indices, filled):  # as a data loader does
    for index in indices: filled.put(items[index])
def plus(x): return x + OFFSET

class Outer:
    class Inner(Item): pass

class Failed(Exception): pass
class Runs(multiprocessing.get_context("spawn").Process):
    def run(self): self._args[0].put(square(6))
def inner(x): return Outer.Inner(x)
def fail(x): raise Failed(x)
def begin(value): multiprocessing.current_process().begun = value
def begun(x): return multiprocessing.current_process().begun.value + x
def nested(x):
    with multiprocessing.get_context("spawn").Pool(1) as pool: return pool.map(square, [x])[0]

def train(trial):
    found = {}
    how = multiprocessing.get_context(trial.config.how)
    with how.Pool(1) as pool:
        found["square"] = pool.map(square, [2])
        found["cube"] = pool.map(cube, [2])
        found["twice"] = pool.map(package.inner.twice, [2])
        found["value"] = pool.map(value, [Item(3)])
        found["plus"] = pool.map(plus, [1])
        found["item"] = [pool.map(Items().__getitem__, [5])[0].value]
        found["inner"] = [type(thing) is Outer.Inner for thing in pool.map(inner, [1])]
        try: pool.map(fail, [4])
        except Failed as error: found["failed"] = list(error.args)
    with how.Pool(1, initializer=begin, initargs=(Item(2),)) as pool:
        found["begun"] = pool.map(begun, [1])
    with how.Manager() as manager:
        shared = manager.dict(item=Item(4))
        found["shared"] = [type(shared["item"]) is Item]
    runs = Runs(args=(queue := multiprocessing.get_context("spawn").Queue(),))
    runs.start()
    found["runs"] = [queue.get(timeout=60)]
    runs.join()
    with concurrent.futures.ProcessPoolExecutor(1, mp_context=how) as pool:
        found["nested"] = [pool.submit(nested, 3).result()]
        found["executor"] = list(pool.map(square, [3]))
    filled = how.Queue()
    loader = how.Process(target=load, args=(Items(), [7], filled))
    loader.start()
    found["loader"] = [filled.get(timeout=60).value]
    loader.join()
    if importlib.util.find_spec("joblib"):
        from joblib import Parallel, delayed
        for backend in ("loky", "multiprocessing"):
            found[backend] = Parallel(n_jobs=2, backend=backend)(delayed(plus)(i) for i in (1, 2))
    if trial.config.beside:
        from helpers import other  # not used by what travelled
        found["other"] = [other(1)]
    assert sys.modules["helpers"].cube is cube
    with how.Pool(1) as pool:  # what needs nothing of the script does not read the function, which may be large
        read = "__import__('sys').modules['outbid._core.function_pickle'].main_of_trial.cache_info().currsize"
        found["read"] = pool.map(eval, [read])
    trial.note(found)
    trial.report(loss=1)

if __name__ == "__main__":
    sys.stdout.buffer.write(function_pickle.dump(train))
"""
FOUND = {
    "square": "[4]",
    "cube": "[8]",
    "twice": "[4]",
    "value": "[3]",
    "plus": "[8]",
    "item": "[5]",
    "executor": "[9]",
    "read": "[0]",
    "loader": "[7]",
    "inner": "[true]",
    "failed": "[4]",
    "begun": "[3]",
    "shared": "[true]",
    "runs": "[36]",
    "nested": "[9]",
}
if importlib.util.find_spec("joblib"):
    FOUND |= {"loky": "[8, 9]", "multiprocessing": "[8, 9]"}


LIBRARY = """
import sys, types
from outbid._core import main_module

def f(x): return x

def of(module):
    return types.FunctionType(f.__code__, {"__name__": module, "f": f}, "f")

main_module.install([of("colorsys"), of("xml.sax.saxutils"), of("outbid._results.soup"), of("own.inner")], "none")
assert not {"colorsys", "xml.sax", "outbid._results.soup"} & set(sys.modules)
import colorsys, own.inner, xml.sax.saxutils
assert colorsys.rgb_to_hsv and xml.sax.saxutils.escape and own.inner.f is f
main_module.install([], "none")
assert "own" not in sys.modules and "own.inner" not in sys.modules
"""


def test_modules_of_installed_packages_are_left_alone(tmp_path: Path) -> None:
    env = {**os.environ, "PYTHONPATH": str(SRC)}
    subprocess.run([sys.executable, "-c", LIBRARY], cwd=tmp_path, env=env, check=True)


@pytest.mark.parametrize("beside", [False, True])
def test_functions_of_the_script_are_found_by_name(
    worker: Callable[..., FakeWorker], tmp_path: Path, beside: bool
) -> None:
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "__init__.py").touch()
    (tmp_path / "package" / "inner.py").write_text("def twice(x): return 2 * x\n")
    (tmp_path / "helpers.py").write_text(HELPERS)
    (tmp_path / "script.py").write_text(SCRIPT)
    blob = subprocess.run(
        [sys.executable, "script.py"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(SRC)},
        check=True,
        capture_output=True,
    ).stdout
    # One process runs all trials, and must find the names each time.
    w = worker(**({"PYTHONPATH": f"{SRC}{os.pathsep}{tmp_path}"} if beside else {}))
    w.function_path.write_bytes(blob)
    w.hear("hello")
    for how in ("fork", "spawn", "forkserver", "spawn"):
        w.assign(f'{{"how": "{how}", "beside": {str(beside).lower()}}}')
        said = w.hear()
        assert hasattr(said, "reports"), (how, said.error, said.traceback)
        assert dict(said.reports[0].attributes) == FOUND | ({"other": "[4]"} if beside else {})
        assert w.hear("ended").error == ""


EARLY_SIGTERM = """
import os, signal, types
from outbid._training.process import handle_sigterm

os.register_at_fork(after_in_child=lambda: os.kill(os.getpid(), signal.SIGTERM))
handle_sigterm(types.SimpleNamespace(inbox=types.SimpleNamespace(put=print)))
child = os.fork()
if child == 0:
    signal.alarm(20)  # without the other signal this one ends it
    while True: signal.pause()
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
os.kill(os.getpid(), signal.SIGTERM)
"""


def test_a_child_that_is_ended_while_it_is_forked_ends() -> None:
    command = [sys.executable, "-c", EARLY_SIGTERM]
    env = {**os.environ, "PYTHONPATH": str(SRC)}
    out = subprocess.run(command, env=env, check=True, capture_output=True, text=True, timeout=60).stdout
    assert out.startswith(f"{-signal.SIGTERM}\n"), out
    assert "Terminate" in out, "the parent still handles its own"
