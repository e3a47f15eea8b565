"""Changes outside a function that are detected after it was sent, and those that are not changes."""

from __future__ import annotations

import functools
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from outbid._core import function_pickle
from outbid._training.outside_state import Outside, Watch

SRC = str(Path(__file__).parents[1] / "src")

DUMP = """
import sys
from outbid._core import function_pickle
sys.stdout.buffer.write(function_pickle.dump(f))
"""

CHANGES = {
    "a global": (
        "best = None\ndef f(t):\n    global best\n    if best is None or t > 0:\n        best = object()",
        ["best"],
    ),
    "a counter": ("count = 0\ndef f(t):\n    global count\n    count += 1", ["count"]),
    "a list": ("losses = []\ndef f(t): losses.append(t)", ["losses"]),
    "a dict": ("losses = {}\ndef f(t): losses[t] = 1", ["losses"]),
    "a dict in a dict": ("all = {'losses': {}}\ndef f(t): all['losses'][t] = 1", ["all"]),
    "a default": ("import collections\nd = collections.defaultdict(list)\ndef f(t): d[t].append(1)", ["d"]),
    "a set and a deque": (
        "import collections\ns, q = set(), collections.deque(maxlen=3)\ndef f(t): s.add(t); q.append(t)",
        ["q", "s"],
    ),
    "an array": ("import numpy as np\nr = np.zeros(3)\ndef f(t): r[1] = t", ["r"]),
    "a nonlocal": (
        "def outer():\n    n = 0\n    def f(t):\n        nonlocal n\n        n += 1\n    return f\nf = outer()",
        ["n"],
    ),
    "a closed-over list": ("def outer(seen):\n    return lambda t: seen.append(t)\nf = outer([])", ["seen"]),
    "an object's attribute": (
        "class O:\n    best = None\n    def __init__(self): self.best = None\n"
        "    def __call__(self, t): self.best = object()\nf = O()",
        ["self.best"],
    ),
    "an object's list": (
        "class O:\n    def __init__(self): self.all = []\n    def run(self, t): self.all.append(t)\nf = O().run",
        ["self.all"],
    ),
    "an attribute of another object": (
        "class State: pass\nstate = State()\nstate.n = 0\ndef f(t): state.n += 1",
        ["state.n"],
    ),
    "a new attribute": ("class State: pass\nstate = State()\ndef f(t): state.n = 1", ["state"]),
    "a class": ("class Best:\n    model = None\ndef f(t): Best.model = t", ["Best.model"]),
    "in a helper": ("log = []\ndef keep(t): log.append(t)\ndef f(t): keep(t)", ["log"]),
    "in a partial": ("import functools\ndef g(log, t): log.append(t)\nf = functools.partial(g, [])", ["an argument"]),
    "in a method of a class": (
        "n = 0\nclass O:\n    def __call__(self, t):\n        global n\n        n += 1\nf = O()",
        ["n"],
    ),
    "a module beside the script": ("import helpers\ndef f(t): helpers.seen = t", ["helpers.seen"]),
    "a list of that module": ("import helpers\ndef f(t): helpers.keep(t)", ["helpers.log"]),
}

NONE = {
    "nothing": "data = [1, 2]\ndef f(t): return sum(data)",
    "a cached function": "import functools\n@functools.lru_cache\ndef load(t): return [t]\ndef f(t): load(t).append(1)",
    "a lazy variable": "data = None\ndef f(t):\n    global data\n    if data is None:\n        data = [1, 2]\n",
    "two lazy variables": "x = y = None\ndef f(t):\n    global x, y\n    if not x:\n        x, y = [1], [2]\n",
    "a lazy attribute": (
        "class O:\n    data = None\n    def __init__(self): self.data = None\n"
        "    def __call__(self, t):\n        if self.data is None:\n            self.data = [1]\nf = O()"
    ),
    "a dict as a cache": "known = {}\ndef f(t):\n    if t not in known:\n        known[t] = t * t\n    return known[t]",
    "a variable named cache": "_CACHE = {}\ndef f(t): _CACHE[t] = 1",
    "a logger": "import logging\nlog = logging.getLogger('x')\ndef f(t): log.setLevel(10); log.warning('a')",
    "a logger that is made": "import logging\ndef f(t): logging.getLogger('new').setLevel(10)",
    "random generators": (
        "import random\nimport numpy as np\n"
        "r, g, old = random.Random(1), np.random.default_rng(1), np.random.RandomState(1)\n"
        "def f(t): r.random(); g.random(); old.rand(); random.random(); np.random.rand()"
    ),
    "datasets that are read": (
        "import numpy as np\nimport pandas as pd\nX, df = np.ones((300, 3)), pd.DataFrame({'a': [1, 2]})\n"
        "def f(t): return X[:2].sum() + df['a'].sum() + df.describe().size"
    ),
    "an object of a library": "import decimal\nc = decimal.Context()\ndef f(t): c.prec = 9; c.divide(1, 3)",
    "locals": "def f(t):\n    a = []\n    a.append(t)\n    def g():\n        nonlocal a\n        a = []\n    g()",
    "a generator of a dataset": "data = (1, 2)\nit = iter([1, 2, 3])\ndef f(t): return data, next(it)",
    "a constant set again": "DEVICE = 'cpu'\ndef f(t):\n    global DEVICE\n    DEVICE = 'c' + 'pu'",
    "an enum": "import enum\nclass K(enum.Enum):\n    A = 1\ndef f(t): return K(1), K.A.name",
    "objects that are pickled": (
        "import cloudpickle, enum, pickle\nclass K(enum.Enum):\n    A = {}\n"
        "class O:\n    many = [1]\n    x = O = None\n"
        "    def m(self): return self\ndef f(t): pickle.loads(cloudpickle.dumps((O(), O, K.A))); return O.many"
    ),
    "a lazy variable, and a local one of its name": (
        "data = None\ndef get():\n    global data\n    if data is None:\n        data = [1]\n    return data\n"
        "def f(t):\n    data = get()\n    return data"
    ),
    "a lazy attribute of another object": (
        "class O:\n    def __init__(self): self.data = None\n    def get(self):\n"
        "        if not self.data:\n            self.data = [1]\no = O()\ndef f(t): return o.get()"
    ),
    "an attribute that is made late": (
        "class O:\n    def get(self):\n        if not hasattr(self, 'data'):\n            self.data = [1]\n"
        "o = O()\ndef f(t): return o.get()"
    ),
    "a cached property": (
        "class cached_property:\n    def __init__(self, f): self.f = f\n"
        "    def __get__(self, o, kind): return o.__dict__.setdefault(self.f.__name__, self.f(o))\n"
        "class O:\n    @cached_property\n    def data(self): return [1]\no = O()\ndef f(t): return o.data"
    ),
    "a lazy variable of a module": "import lazy\ndef f(t): return lazy.get()",
    "a lookup that fails": (
        "known = {}\ndef f(t):\n    try:\n        return known[t]\n    except KeyError:\n        known[t] = t"
    ),
    "a list that is filled once": "data = []\ndef f(t):\n    if len(data) == 0:\n        data[:] = [1, 2]",
    "a value or a new one": "data = None\ndef f(t):\n    global data\n    data = data or [1]",
    "a network that is put into evaluation": (
        "class Net:\n    def __init__(self): self.training = True\n    def eval(self): self.training = False\n"
        "net = Net()\ndef f(t): net.eval()"
    ),
    "modules of Python's": "import warnings, os\ndef f(t): warnings.simplefilter('ignore'); os.environ['X'] = '1'",
}


RESETS = {
    "an attribute": (
        "class O:\n    def __init__(self): self.log, self.net = [], None\n    def __call__(self, t):\n"
        "        self.net = object()\n        self.log = []\n        self.log.append(t)\nf = O()"
    ),
    "a new attribute": (
        "class O:\n    def __call__(self, t):\n        with open('/dev/null'):\n            self.a = t\nf = O()"
    ),
    "a global": "step = 0\ndef f(t):\n    global step\n    step = 0\n    for _ in range(3):\n        step += t",
    "a list that is emptied": "log = []\ndef f(t):\n    log.clear()\n    log.append(t)",
}
OVERWRITTEN = {"an object's attribute", "a new attribute", "a class", "a module beside the script"}
"""Of CHANGES: what every trial assigns without reading it."""


def travelled(tmp_path: Path, text: str) -> object:
    """Return the function `f` of a script like on a worker, with its source."""
    (tmp_path / "helpers.py").write_text("log = []\nseen = None\ndef keep(t): log.append(t)\n")
    (tmp_path / "lazy.py").write_text(
        "data = None\ndef get():\n    global data\n    if data is None:\n        data = [1]\n    return data\n"
    )
    (tmp_path / "script.py").write_text(text + textwrap.dedent(DUMP))
    done = subprocess.run(
        [sys.executable, "script.py"],
        cwd=tmp_path,
        env={"PYTHONPATH": SRC, "PATH": "/usr/bin:/bin"},
        capture_output=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr.decode()
    function = function_pickle.load(done.stdout)
    function_pickle.show_sources(done.stdout)
    return function


@pytest.mark.parametrize("name", CHANGES)
def test_changes_are_noticed(name: str, tmp_path: Path) -> None:
    text, expected = CHANGES[name]
    function = travelled(tmp_path, text)
    outside, strict = Outside(function), Outside(function, ignore_resets=True)
    assert outside.changed() == strict.changed() == []
    function(1)  # type: ignore[operator]
    assert sorted(outside.changed()) == expected
    assert sorted(strict.changed()) == ([] if name in OVERWRITTEN else expected)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", NONE)
def test_there_is_no_false_alarm(name: str, tmp_path: Path) -> None:
    function = travelled(tmp_path, NONE[name])
    outside = Outside(function)
    function(1)  # type: ignore[operator]
    function(2)  # type: ignore[operator]
    assert outside.changed() == []


@pytest.mark.parametrize("name", RESETS)
def test_what_every_trial_sets_first_is_no_change_of_a_sweeps(name: str, tmp_path: Path) -> None:
    function = travelled(tmp_path, RESETS[name])
    outside, strict = Outside(function), Outside(function, ignore_resets=True)
    function(1)  # type: ignore[operator]
    assert outside.changed() and strict.changed() == []


def test_large_data_is_looked_at_in_part() -> None:
    data = [[[float(n) for n in range(28)] for _ in range(28)] for _ in range(500)]
    outside = Outside(functools.partial(len, data))
    assert len(outside._seen) <= 20_001


def test_a_watch_ends_with_the_first_change_or_after_its_trials() -> None:
    seen: list[int] = []
    grow = seen.append
    watch = Watch(functools.partial(grow), 2)
    watch._function = functools.partial(len, seen)
    for changes, expected in ((False, []), (True, ["an argument"]), (True, [])):
        watch.begin()
        if changes:
            grow(1)
        assert watch.changed() == expected
