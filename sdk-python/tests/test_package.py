"""The package as a whole: imports, names, documentation."""

from __future__ import annotations

import importlib.util
import inspect
import os
import platform
import re
import subprocess
import sys
from importlib.machinery import SourceFileLoader
from pathlib import Path

import pytest

import outbid as ob
from outbid import errors, types

ROOT = Path(__file__).parents[1]
HEAVY = ["ray", "torch", "matplotlib", "pandas", "IPython"]


def modules_after(code: str) -> set[str]:
    done = subprocess.run(
        [sys.executable, "-c", f"import sys; {code}; print(*sys.modules)"],
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    return set(done.stdout.split())


def test_documents_use_names_that_exist() -> None:
    top = ROOT.parent
    documents = [
        *top.glob("*.md"),
        *top.glob("docs/**/*.md"),
        *top.glob("examples/**/*.md"),
        *top.glob("examples/**/*.ipynb"),
    ]
    assert len(documents) > 5
    for path in documents:
        for name in set(re.findall(r"\bob\.([A-Za-z]\w*)", path.read_text())):
            assert hasattr(ob, name), f"{path} uses ob.{name}, which does not exist"


def test_import_is_light() -> None:
    loaded = modules_after("import outbid")
    assert not loaded & {*HEAVY, "grpc", "numpy", "rich", "google.protobuf"}


def test_a_sweep_is_made_without_what_only_a_connection_needs() -> None:
    loaded = modules_after("import outbid as ob; ob.Sweep(print, {'x': ob.uniform(0, 1)}, metric='y', mode='min')")
    assert not loaded & {*HEAVY, "grpc", "asyncio", "ssl", "numpy", "rich.live", "google.protobuf.json_format"}


def test_no_name_needs_a_heavy_package() -> None:
    # SearchCV is a scikit-learn class, and loads scikit-learn's dependencies.
    names = [name for name in (*ob.__all__, *errors.__all__, *types.__all__) if name != "SearchCV"]
    assert not modules_after(f"import outbid; [getattr(outbid, n) for n in {names}]") & {*HEAVY, "sklearn"}


def test_without_ray_its_package_says_how_to_install_it() -> None:
    done = subprocess.run(
        [sys.executable, "-c", "import sys; sys.modules['ray'] = None; import outbid.ray"],
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 1
    assert done.stderr.rstrip().endswith("MissingExtraError: outbid.ray needs Ray: pip install 'outbid[ray]'")


def test_training_process_starts_light() -> None:
    loaded = modules_after("import outbid.trial_process")
    assert not loaded & {*HEAVY, "rich", "cloudpickle", "safetensors", "numpy"}
    assert not loaded & {"hashlib", "importlib.resources", "tarfile", "tempfile"}, "which is a sixth of its start"


def test_all_names_are_there_and_documented() -> None:
    assert sorted(ob.__all__) == dir(ob)
    for name in (*ob.__all__, *errors.__all__, *types.__all__):
        value = getattr(ob, name)
        if not name.startswith("__"):
            assert inspect.getdoc(value), f"{name} has no docstring"
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        _ = ob.nothing  # type: ignore[attr-defined]


def test_type_checkers_and_python_see_the_same_names() -> None:
    import ast

    tree = ast.parse((ROOT / "src/outbid/__init__.py").read_text())
    guarded = next(n for n in tree.body if isinstance(n, ast.If))
    typed = {a.name for n in guarded.body if isinstance(n, ast.ImportFrom) for a in n.names}
    listed = {*ob.__all__, *errors.__all__, *types.__all__}
    assert typed | {"__version__"} == listed == set(ob._HOME) | {"__version__", "callbacks", "loggers"}


def test_few_names_are_listed() -> None:
    """The names of the package are those that a script writes. Other classes are in outbid.errors and outbid.types."""
    assert len(dir(ob)) <= 60
    assert not set(types.__all__) & set(ob.__all__)
    assert set(errors.__all__) & set(ob.__all__) == {"OutbidError", "StopTrial", "SweepFailedError"}
    for module in (errors, types):
        assert all(getattr(module, name) is getattr(ob, name) for name in module.__all__)


def test_sweep_describes_each_argument_once_and_everyday_ones_first() -> None:
    """A user who writes Sweep( sees at most twenty arguments before those that few sweeps need."""
    accepted = list(inspect.signature(ob.Sweep).parameters)
    everyday, rare = (inspect.getdoc(ob.Sweep) or "").split("Arguments that few sweeps need:")
    listed = [
        [name for line in re.findall(r"^    (\w[\w, ]*): ", part, re.MULTILINE) for name in line.split(", ")]
        for part in (everyday.split("Args:")[1], rare)
    ]
    assert sorted([*listed[0], *listed[1], "limits"]) == sorted(accepted)
    assert set(accepted[:20]) >= {*listed[0], "limits"}, "arguments that few sweeps need stand before others"
    assert len(listed[0]) <= 20
    assert len(accepted) <= 35, "put a new argument into one of the classes that an argument takes, such as Checkpoints"


def test_reference_names_everything() -> None:
    reference = ROOT.parent / "docs" / "reference" / "sdk.md"
    if not reference.exists():
        pytest.skip("no docs beside this package")
    text = "".join(page.read_text() for page in (reference, *(reference.parent / "sdk").glob("*.md")))
    missing = [
        name
        for name in (*ob.__all__, *errors.__all__, *types.__all__)
        if not name.startswith("__") and name not in text
    ]
    assert not missing, f"docs/reference/sdk.md and sdk/ do not mention {missing}"


def test_py_typed() -> None:
    assert (ROOT / "src/outbid/py.typed").exists()


def test_a_wheel_is_for_this_machine_unless_others_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    path = str(ROOT.parent / ".ci" / "wheel")
    loader = SourceFileLoader("wheel", path)
    wheel = importlib.util.module_from_spec(importlib.util.spec_from_loader("wheel", loader))  # type: ignore[arg-type]
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    loader.exec_module(wheel)
    everything = ["linux-amd64", "linux-arm64", "darwin-arm64", "darwin-amd64", "sdist"]
    assert wheel.chosen(["all"]) == everything and wheel.chosen(["sdist"]) == ["sdist"]
    for system, machine, name in [
        ("Linux", "x86_64", "linux-amd64"),
        ("Linux", "aarch64", "linux-arm64"),
        ("Darwin", "arm64", "darwin-arm64"),
    ]:
        monkeypatch.setattr(platform, "system", lambda system=system: system)
        monkeypatch.setattr(platform, "machine", lambda machine=machine: machine)
        assert wheel.chosen([]) == [name]
    monkeypatch.setattr(platform, "system", lambda: "Windows")
    with pytest.raises(SystemExit, match="no wheel is built for this machine, windows-arm64; name a platform"):
        wheel.chosen([])
