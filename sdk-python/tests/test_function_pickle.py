"""Functions that are sent to workers."""

from __future__ import annotations

import subprocess
import sys
import textwrap
import threading
import types
from pathlib import Path
from typing import Any

import pytest

import outbid as ob
from outbid._core import function_pickle

SRC = str(Path(__file__).parents[1] / "src")


def run_script(tmp_path: Path, text: str, *, cwd: Path | None = None) -> bytes:
    """Run a script that dumps a function; returns the blob."""
    (tmp_path / "script.py").write_text(textwrap.dedent(text))
    done = subprocess.run(
        [sys.executable, str(tmp_path / "script.py")],
        cwd=cwd or tmp_path,
        env={"PYTHONPATH": SRC, "PATH": "/usr/bin:/bin"},
        capture_output=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout


DUMP = """
import sys
from outbid._core import function_pickle
sys.stdout.buffer.write(function_pickle.dump(train))
"""


def test_main_function_with_globals_and_closures(tmp_path: Path) -> None:
    blob = run_script(
        tmp_path,
        """
        import math
        FACTOR = 3
        class Model:
            def predict(self, x): return FACTOR * math.sqrt(x)
        def outer(offset):
            def train(trial): return Model().predict(trial) + offset
            return train
        train = outer(1)
        """
        + textwrap.dedent(DUMP).replace("\n", "\n        "),
    )
    assert function_pickle.load(blob)(4) == 7


def test_cached_functions_travel(tmp_path: Path) -> None:
    (tmp_path / "data.py").write_text("import functools\n@functools.cache\ndef size(): return 2\n")
    blob = run_script(
        tmp_path,
        """
        import functools
        import data
        @functools.lru_cache(maxsize=7)
        def fib(n): return n if n < 2 else fib(n - 1) + fib(n - 2)
        class Model:
            @functools.lru_cache
            def predict(self, x): return fib(x)
        def train(x): return Model().predict(x), data.size(), fib.cache_parameters()["maxsize"], fib.__name__
        """
        + textwrap.dedent(DUMP).replace("\n", "\n        "),
    )
    assert function_pickle.load(blob)(60) == (1548008755920, 2, 7, "fib")


def test_submodules_that_inner_code_uses_travel(tmp_path: Path) -> None:
    blob = run_script(
        tmp_path,
        """
        import concurrent.futures
        import curses.ascii
        import wsgiref.util
        import xml.dom.minidom
        def outer(parse):
            import xml.sax.saxutils
            def train(x):
                def inner(): return (lambda: wsgiref.util.application_uri)()
                names = [curses.ascii.unctrl(c) for c in "a"]
                return names, inner().__name__, parse("<a/>").toxml(), (lambda s: xml.sax.saxutils.escape(s))("<")
            return train
        train = outer(lambda text: xml.dom.minidom.parseString(text).documentElement)
        """
        + textwrap.dedent(DUMP).replace("\n", "\n        "),
    )
    call = "import sys; from outbid._core import function_pickle as p; print(p.load(sys.stdin.buffer.read())(0))"
    done = subprocess.run(
        [sys.executable, "-c", call], input=blob, env={"PYTHONPATH": SRC}, capture_output=True, timeout=60
    )
    assert done.stdout.decode().strip() == "(['a'], 'application_uri', '<a/>', '&lt;')", done.stderr.decode()


def test_modules_beside_the_script_travel(tmp_path: Path) -> None:
    (tmp_path / "mymodel").mkdir()
    (tmp_path / "mymodel" / "__init__.py").write_text("from mymodel.inner import build\n")
    (tmp_path / "mymodel" / "inner.py").write_text("SIZE = 5\ndef build(): return SIZE\n")
    (tmp_path / "helpers.py").write_text("import mymodel\ndef help(): return mymodel.build() + 1\n")
    blob = run_script(
        tmp_path,
        """
        import helpers, json
        def train(trial): return json.dumps(helpers.help())
        """
        + textwrap.dedent(DUMP).replace("\n", "\n        "),
        cwd=Path("/"),
    )
    assert "mymodel" not in sys.modules
    assert function_pickle.load(blob)(None) == "6"
    assert "mymodel" not in sys.modules


def test_what_cannot_be_pickled_is_named() -> None:
    lock = threading.Lock()

    def train(trial: Any) -> None:
        with lock:
            pass

    with pytest.raises(ob.FunctionError, match=r"'train' cannot be pickled: .*it captures: lock\)"):
        function_pickle.dump(train)


def test_too_large_names_the_largest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(function_pickle, "MAX_BYTES", 1 << 20)
    data, small = bytes(2 << 20), bytes(10)

    def train(trial: Any) -> int:
        return len(data) + len(small)

    with pytest.raises(ob.FunctionError, match=r"is 2\.0 MiB .*at most 1\.0 MiB.*largest: data 2\.0 MiB"):
        function_pickle.dump(train)


def test_other_python_is_named() -> None:
    blob = b"outbid function 1 python=3.1\n\x80\x04garbage"
    with pytest.raises(ob.FunctionError, match=r"pickled by Python 3\.1 and cannot be read by .*Sweep\(python="):
        function_pickle.load(blob)
    with pytest.raises(ob.FunctionError, match="not a function that the Outbid SDK has pickled"):
        function_pickle.load(b"\x80\x04.")


def test_registry_is_left_as_it_was() -> None:
    import cloudpickle

    before = set(cloudpickle.list_registry_pickle_by_value())
    function_pickle.dump(lambda trial: None)
    assert set(cloudpickle.list_registry_pickle_by_value()) == before


def test_a_function_of_a_spawned_process_travels_by_value(tmp_path: Path) -> None:
    script = """
        import sys
        from concurrent.futures import ProcessPoolExecutor
        from multiprocessing import get_context

        def helper():
            return 5

        def train(trial):
            return helper()

        def dump():
            from outbid._core import function_pickle

            return function_pickle.dump(train)

        if __name__ == "__main__":
            with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
                sys.stdout.buffer.write(pool.submit(dump).result())
        """
    blob = run_script(tmp_path, script)
    assert function_pickle.load(blob)(None) == 5


def test_what_cannot_be_pickled_is_named_by_its_path() -> None:
    class Setup:
        def __init__(self) -> None:
            self.parts = [1, {"db": threading.Lock()}]

    setup, fine = Setup(), {"a": 1}

    def train(trial: ob.Trial) -> object:
        return setup.parts, fine

    with pytest.raises(ob.FunctionError, match=r"it captures: setup\.parts\[1\]\['db'\]\)"):
        function_pickle.dump(train)


LAZY = """
import importlib
import importlib.util
import sys
import types

class Lazy(types.ModuleType):
    def __getattr__(self, name):
        return getattr(importlib.import_module(self.__name__), name)

class Own(Lazy):
    def __reduce__(self):
        return importlib.import_module, (self.__name__,)

def of_python(name):
    spec = importlib.util.find_spec(name)
    loader = importlib.util.LazyLoader(spec.loader)
    spec.loader = loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    loader.exec_module(module)
    return module

colors = Lazy("colorsys")
own = Own("fractions")
standard = of_python("this_is_lazy")
missing = Lazy("no_such_module")
sys.modules["registered.lazily"] = Lazy("registered.lazily")

def train(x):
    if x == "missing":
        return missing.anything
    return colors.rgb_to_hsv(0, 0, 0), own.Fraction(1, 2), standard.VALUE
"""


def test_modules_that_load_when_they_are_used_travel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Such modules are instances of classes of libraries or of the script, which cannot be pickled as objects."""
    installed = tmp_path / "site-packages"
    installed.mkdir()
    (installed / "this_is_lazy.py").write_text("VALUE = 7\n")
    script = f"import sys\nsys.path.append({str(installed)!r})\n" + LAZY + DUMP
    blob = run_script(tmp_path, script)
    monkeypatch.syspath_prepend(str(installed))
    train = function_pickle.load(blob)
    assert str(train("x")) == "((0.0, 0.0, 0), Fraction(1, 2), 7)"
    with pytest.raises(ModuleNotFoundError, match="no_such_module"):
        train("missing")


def test_packages_that_pip_installed_into_a_folder_are_imported(tmp_path: Path) -> None:
    for package in ("installed", "own"):
        (tmp_path / package).mkdir()
        (tmp_path / package / "__init__.py").write_text("import threading\nLOCK = threading.Lock()\nVALUE = 3\n")
    (tmp_path / "own" / "__init__.py").write_text("VALUE = 4\n")
    (tmp_path / "installed-1.0.dist-info").mkdir()
    (tmp_path / "installed-1.0.dist-info" / "RECORD").write_text("installed/__init__.py,sha256=x,9\n")
    script = "import installed, own\ndef train(x):\n    return installed.VALUE + own.VALUE\n"
    blob = run_script(tmp_path, script + DUMP)
    with pytest.raises(ob.FunctionError, match="needs the module 'installed'"):
        function_pickle.load(blob)


def test_a_links_target_says_whether_a_module_is_installed(tmp_path: Path) -> None:
    (tmp_path / "site-packages").mkdir()
    for name in ("package", "module.py"):
        (tmp_path / "site-packages" / name).symlink_to(tmp_path / name)
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "__init__.py").write_text("VALUE = 3\n")
    (tmp_path / "module.py").write_text("VALUE = 4\n")
    script = "import sys\nsys.path.insert(0, 'site-packages')\nimport module, package\n"
    blob = run_script(tmp_path, script + "def train(x):\n    return module.VALUE + package.VALUE\n" + DUMP)
    assert function_pickle.load(blob)(None) == 7


def test_objects_that_claim_to_be_modules_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """The libraries of cffi register such objects, without a `__dict__`, in sys.modules."""

    class Lib:
        __slots__ = ()
        __class__ = types.ModuleType  # type: ignore[assignment]

    lib = Lib()
    assert isinstance(lib, types.ModuleType) and not hasattr(lib, "__dict__")
    monkeypatch.setitem(sys.modules, "compiled.lib", lib)
    assert function_pickle.load(function_pickle.dump(lambda x: x + 1))(1) == 2


def test_a_module_of_the_scripts_with_a_class_of_its_own_travels_by_value(tmp_path: Path) -> None:
    (tmp_path / "settings.py").write_text(
        "import sys, types\nclass Module(types.ModuleType):\n    pass\n"
        "SIZE = 5\nsys.modules[__name__].__class__ = Module\n"
    )
    blob = run_script(tmp_path, "import settings\ndef train(x):\n    return settings.SIZE\n" + DUMP)
    assert "settings" not in sys.modules
    assert function_pickle.load(blob)(None) == 5


def test_optunas_lazy_modules_travel(tmp_path: Path) -> None:
    pytest.importorskip("optuna")
    blob = run_script(
        tmp_path,
        """
        import optuna
        from optuna import integration
        from optuna._imports import _LazyImport
        lazy = _LazyImport("json")
        def train(x):
            if x == "callback":
                return optuna.integration.XGBoostPruningCallback(None, "loss")
            return lazy.dumps([1]), integration.__name__
        """
        + textwrap.dedent(DUMP).replace("\n", "\n        "),
    )
    assert function_pickle.load(blob)(None) == ("[1]", "optuna.integration")
