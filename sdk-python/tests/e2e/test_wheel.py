"""The wheel contains the binary: it is sufficient for a sweep in an empty environment without Go."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

DEADLINE = 500.0
PROJECT = Path(__file__).resolve().parents[2]
LARGEST = 40 << 20
BUILT_WITH = ["hatchling>=1.25", "pyelftools>=0.31"]
FIXED = {"SOURCE_DATE_EPOCH": "1700000000"}
KERNEL = ["ipykernel>=6.29"]  # additional requirements of a notebook

SCRIPT = """
import json, sys
import outbid as ob
from outbid._client.local_server import find_binary

def train(trial):
    for step in trial.steps():
        trial.report(step=step, loss=(trial.config.x - 2) ** 2 / step)

if __name__ == "__main__":
    sweep = ob.Sweep(train, {"x": ob.uniform(0, 4)}, metric="loss", mode="min", tuner=ob.Random(max_steps=2), trials=3)
    result = sweep.run(display=False)
    print(json.dumps([find_binary(), ob.__file__, result.sweep.state, len(result.trials)]))
"""


def run(*command: str | Path, cwd: Path | None = None, env: dict[str, str] | None = None) -> str:
    """Run a command and return its output."""
    done = subprocess.run(
        [str(part) for part in command],
        cwd=cwd,
        env=env,
        capture_output=True,
        text=True,
        timeout=DEADLINE,
        check=False,
    )
    assert done.returncode == 0, f"{' '.join(map(str, command))}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def packages(wanted: list[str], name: str) -> Path:
    """Return a directory with packages and their dependencies, which is cached with the other tools."""
    home = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    cache = Path(os.environ.get("OUTBID_CACHE") or f"{home}/outbid") / "python"
    cache.mkdir(parents=True, exist_ok=True)
    key = hashlib.sha256(repr((sys.version_info[:2], sorted(wanted))).encode()).hexdigest()[:12]
    place = cache / f"{name}-{key}"
    with (cache / f".{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not place.exists():
            new = place.with_suffix(".new")
            shutil.rmtree(new, ignore_errors=True)
            pip = (sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "--quiet", "--no-input")
            run(*pip, "--target", new, *wanted)
            new.rename(place)
    return place


def dependencies() -> list[str]:
    """Return the package's requirements."""
    text = (PROJECT / "pyproject.toml").read_text()
    block = text.split("\ndependencies = [", 1)[1].split("]", 1)[0]
    return [line.strip().strip('",') for line in block.splitlines() if line.strip()]


def build(kind: str, to: Path, **env: str) -> Path:
    """Build the wheel or the source distribution."""
    hatchling = packages(BUILT_WITH, "build")
    code = f"import os, hatchling.build as b; os.chdir({str(PROJECT)!r}); print(b.build_{kind}({str(to)!r}))"
    out = run(sys.executable, "-c", code, env={**os.environ, "PYTHONPATH": str(hatchling), **env})
    return to / out.split()[-1]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the wheel with the tested binary."""
    return build("wheel", tmp_path_factory.mktemp("wheel"), OUTBID_WHEEL_BINARY=os.environ["OUTBID_BIN"], **FIXED)


@dataclass
class Installed:
    """An environment with the wheel, without Go and without the checkout."""

    python: Path
    env: dict[str, str]


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installed]:
    """Install the wheel into an empty environment. Its dependencies come from the cache."""
    venv = tmp_path_factory.mktemp("empty") / "venv"
    run(sys.executable, "-m", "venv", "--without-pip", venv)
    site = next(venv.glob("lib/python*/site-packages"))
    (site / "dependencies.pth").write_text(f"{packages([*dependencies(), *KERNEL], 'sdk')}\n")
    pip = (sys.executable, "-m", "pip", "--python", venv / "bin" / "python", "--disable-pip-version-check")
    # without an index, so that it fails if a dependency is missing
    run(*pip, "install", "--quiet", "--no-index", wheel)
    env = {
        "PATH": str(venv / "bin"),
        "HOME": str(venv),
        "LANG": "C.UTF-8",
        "OUTBID_DEVICES": os.environ["OUTBID_DEVICES"],
        "JUPYTER_PLATFORM_DIRS": "1",
    }
    assert shutil.which("go", path=env["PATH"]) is None
    yield Installed(venv / "bin" / "python", env)


def test_the_wheel_says_which_machines_it_is_for(wheel: Path) -> None:
    assert wheel.stat().st_size < LARGEST
    name, version, python, abi, platform = wheel.stem.split("-")
    assert (name, python, abi) == ("outbid", "py3", "none")
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        said = archive.read(f"outbid-{version}.dist-info/WHEEL").decode().splitlines()
    assert f"outbid-{version}.data/scripts/outbid" in names
    assert f"outbid-{version}.dist-info/licenses/LICENSE" in names
    assert not [there for there in names if "test" in there]
    assert "Root-Is-Purelib: false" in said
    assert {f"Tag: py3-none-{one}" for one in platform.split(".")} <= set(said)
    if sys.platform == "linux":
        least = needed_glibc(Path(os.environ["OUTBID_BIN"]))
        if least is None:
            assert platform.split(".")[0].startswith("manylinux_2_17_")
        else:
            major, minor = max(least, (2, 17))
            assert platform.split(".")[0].startswith(f"manylinux_{major}_{minor}_")


def test_two_builds_give_the_same_bytes(tmp_path: Path) -> None:
    licences = tmp_path / "THIRD_PARTY_LICENCES.txt"
    licences.write_text("none")
    binary = shutil.which("true") or os.environ["OUTBID_BIN"]  # a small one takes less time to compress
    built = [build("wheel", tmp_path / to, OUTBID_WHEEL_BINARY=binary, **FIXED) for to in ("first", "second")]
    assert built[0].read_bytes() == built[1].read_bytes()
    with_licences = build("wheel", tmp_path, OUTBID_WHEEL_BINARY=binary, OUTBID_WHEEL_LICENCES=str(licences), **FIXED)
    with zipfile.ZipFile(with_licences) as archive:
        assert [name for name in archive.namelist() if name.endswith("/extra_metadata/THIRD_PARTY_LICENCES.txt")]


def needed_glibc(binary: Path) -> tuple[int, int] | None:
    """Return the newest version of glibc that a binary needs, found with another tool; None if it needs none."""
    if shutil.which("objdump") is None:
        pytest.skip("objdump (binutils) is not installed")
    words = run("objdump", "-p", binary).split()
    found = [word.removeprefix("GLIBC_").split(".") for word in words if word.startswith("GLIBC_2")]
    return max(((int(v[0]), int(v[1])) for v in found), default=None)


def test_a_sweep_from_a_script(installed: Installed, tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(SCRIPT)
    binary, package, state, trials = json.loads(run(installed.python, "script.py", cwd=tmp_path, env=installed.env))
    assert binary == str(installed.python.parent / "outbid")
    assert Path(package).is_relative_to(installed.python.parents[1])
    assert (state, trials) == ("done", 3)
    assert run(installed.python, "-m", "outbid", "version", env=installed.env).startswith("outbid ")


def test_the_first_lines_of_the_readme(installed: Installed, tmp_path: Path) -> None:
    readme = PROJECT.parent / "README.md"
    if not readme.exists():
        pytest.skip("the README is not beside the SDK")
    lines = readme.read_text().split("```python\n", 1)[1].split("```", 1)[0]
    assert len([line for line in lines.splitlines() if line]) == 5
    (tmp_path / "five.py").write_text(lines)
    assert "train-1: done" in run(installed.python, "five.py", cwd=tmp_path, env=installed.env)


def test_a_sweep_from_a_notebook(installed: Installed, tmp_path: Path) -> None:
    nbformat, nbclient = pytest.importorskip("nbformat"), pytest.importorskip("nbclient")
    kernel = tmp_path / "jupyter" / "kernels" / "empty"
    kernel.mkdir(parents=True)
    argv = [str(installed.python), "-m", "ipykernel_launcher", "-f", "{connection_file}"]
    (kernel / "kernel.json").write_text(json.dumps({"argv": argv, "display_name": "empty", "language": "python"}))
    book = nbformat.v4.new_notebook()
    book.cells = [nbformat.v4.new_code_cell(text) for text in (SCRIPT.split("if __name__")[0], NOTEBOOK)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JUPYTER_PATH", str(tmp_path / "jupyter"))
        place = {"metadata": {"path": str(tmp_path)}}
        client = nbclient.NotebookClient(book, timeout=DEADLINE, kernel_name="empty", resources=place)
        client.execute(env=installed.env)
    outputs = book.cells[-1].outputs
    assert any("<b>train-1</b></a> done" in o["data"]["text/html"] for o in outputs if "text/html" in o.get("data", {}))
    assert outputs[-1]["data"]["text/plain"] == f"'{installed.python.parent / 'outbid'}'"


NOTEBOOK = """
ob.Sweep(train, {"x": ob.uniform(0, 4)}, metric="loss", mode="min", tuner=ob.Random(max_steps=2), trials=3).run()
find_binary()
"""


def test_without_go_the_source_says_what_is_missing(tmp_path: Path) -> None:
    source = build("sdist", tmp_path)
    run(sys.executable, "-m", "tarfile", "-e", source, tmp_path / "source")
    (project,) = (tmp_path / "source").iterdir()
    assert (project / "go" / "main.go").exists() and (project / "go" / "go.sum").exists()
    assert not list(project.rglob("*_test.go"))
    code = f"import os, hatchling.build as b; os.chdir({str(project)!r}); b.build_wheel({str(tmp_path)!r})"
    env = {"PATH": str(tmp_path), "HOME": str(tmp_path), "PYTHONPATH": str(packages(BUILT_WITH, "build"))}
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=DEADLINE, check=False)
    assert done.returncode != 0
    assert "needs Go 1.26 or later, but `go` was not found in PATH" in done.stderr
    assert "OUTBID_WHEEL_BINARY" in done.stderr
    run(*command, env={**env, "OUTBID_WHEEL_BINARY": "none"})
    (client,) = tmp_path.glob("*.whl")
    assert client.name.endswith("-py3-none-any.whl")
