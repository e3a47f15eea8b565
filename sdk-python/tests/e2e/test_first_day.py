"""Common behaviour of the command line and Python on a real server."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import outbid as ob
from outbid._search.default_tuner import reason

from .conftest import SRC

FILE = """
name: usual
space: {x: {float: {low: 0, high: 1}}}
metric: loss
mode: min
external: {}
"""


def outbid(*words: str, cwd: Path, text: str = "") -> subprocess.CompletedProcess[str]:
    python = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    env = {**os.environ, "PATH": python, "PYTHONPATH": SRC, "HOME": str(cwd)}
    return subprocess.run(
        [os.environ["OUTBID_BIN"], *words], input=text, cwd=cwd, env=env, capture_output=True, text=True, timeout=300
    )


@pytest.mark.parametrize(
    ("trials", "several", "kind"), [(5, 0, "auto"), (5000, 0, "auto"), (11, 1, "bayes"), (1001, 1, "bayes")]
)
def test_a_file_without_a_tuner_has_that_of_python(
    real: ob.Client, tmp_path: Path, trials: int, several: bool, kind: str
) -> None:
    more = "objectives: [{metric: size, mode: min}]\n" if several else ""
    text = f"{FILE}{more}limits: {{trials: {trials}}}\ntuner: {{seed: 3}}\n"
    done = outbid("submit", "-", "--server", real.url, cwd=tmp_path, text=text)
    assert done.returncode == 0, done.stderr
    there = real.spec(done.stdout.strip()).tuner
    said = reason(real.spec(done.stdout.strip()))
    assert said in done.stderr and said.startswith(f"tuner: {kind}, ")
    goals: dict[str, Any] = {"metric": "loss", "mode": "min"}
    if several:
        goals = {"metric": ["loss", "size"], "mode": ["min", "min"]}
    here = ob.Sweep(space={"x": ob.uniform(0, 1)}, trials=trials, name="usual", **goals)
    handle = here.submit(real)
    mine = real.spec(handle.id).tuner
    mine.seed = 3
    for tuner in (there, mine):
        assert tuner.WhichOneof("kind") == kind
    for sweep in (handle, real.attach(done.stdout.strip())):
        sweep.delete(force=True)
    assert there == mine


def test_a_program_that_fails_shows_its_last_lines(
    real: ob.Client, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    shell = "for n in 1 2 3 4 5 6 7; do echo line $n >&2; done; exit 3"
    sweep = ob.Sweep(program=shell, space={"x": ob.uniform(0, 1)}, metric="loss", mode="min", trials=3, concurrency=1)
    lines = "line 3\nline 4\nline 5\nline 6\nline 7"
    with pytest.raises(ob.SweepFailedError) as silent:
        sweep.run(client=real, timeout=300, display=False)
    assert str(silent.value).endswith(f"so it is not tried again\n{lines}") and capsys.readouterr().out == ""
    with pytest.raises(ob.SweepFailedError) as failed:
        sweep.run(client=real, timeout=300)
    assert str(failed.value).endswith("so it is not tried again"), "the display has told the rest"
    out = capsys.readouterr().out
    assert out.count(f"\n{lines}\n") == 1 and "line 2" not in out
    said = [line for line in out.splitlines() if "; steps: " not in line]  # progress, which may show the end already
    count = "\n".join(said).count("exited with code 3: line 7")
    assert count == 3, f"the note, how many are alike, and the sweep's end:\n{out}"
    assert "2 other trials alike: exited with code 3: line 7\n" in out
    assert out.endswith("no trial reported loss\n")
    marks = [line.line for line in sweep.handle.logs(0) if line.stream == "outbid"]
    assert len(marks) == 1 and marks[0].startswith("--- started on local at "), "two attempts"


@pytest.mark.parametrize(
    ("resources", "why"),
    [
        (ob.Resources(devices=4000), "no node has 4000 devices; the most is "),
        (ob.Resources(types=["h100"]), "no node has 1 device of type h100; the most is 0"),
        (ob.Resources(memory="900TiB"), "no fitting node has "),
    ],
)
def test_what_this_machine_can_never_run_is_refused_at_once(real: ob.Client, resources: ob.Resources, why: str) -> None:
    sweep = ob.Sweep(
        program="true", space={"x": ob.uniform(0, 1)}, metric="x", mode="min", trials=1, resources=resources
    )
    with pytest.raises(ob.InvalidError, match=rf"resources: {why}.*; ask for what there is"):
        sweep.submit(real)


def test_states_are_words_of_the_field(real: ob.Client, tmp_path: Path) -> None:
    sweep = ob.Sweep(
        space={"x": ob.uniform(0, 1)}, metric="loss", mode="min", trials=9, tuner=ob.ASHA(max_steps=9, form="stop")
    )
    handle = sweep.submit(real)
    for loss in range(4):
        trial = handle.ask()
        assert trial is not None
        handle.tell(trial, float(loss), step=1)
    handle.stop()
    for _ in handle.watch():
        pass
    states = {trial.state for trial in handle.trials()}
    listed = outbid("ls", handle.id, "--server", real.url, cwd=tmp_path).stdout
    assert states == {"pruned", "stopped"} and all(state in listed for state in states), (states, listed)
    counts = handle.info().counts
    assert counts["pruned"] + counts["stopped"] == counts["total"] and "cancelled" not in counts


best_model: object = None
losses: list[float] = []
step = 0


def careless(trial: ob.Trial) -> float:
    global best_model
    loss = float(trial.config.x)
    if best_model is None or loss < min(losses):
        best_model = object()
    losses.append(loss)
    return loss


def careful(trial: ob.Trial) -> float:
    global step
    step = 0
    for _ in range(3):
        step += 1
    return float(trial.config.x)


def test_changes_outside_a_training_function_are_warned_of_once(real: ob.Client) -> None:
    def run(train: Callable[[ob.Trial], float]) -> ob.Result:
        sweep = ob.Sweep(train, {"x": ob.uniform(0, 1)}, metric="loss", mode="min", trials=6, tuner=ob.Random())
        return sweep.run(client=real, display=False, timeout=300)

    with pytest.warns(UserWarning, match="the training function changes 'best_model', 'losses' outside of it") as told:
        result = run(careless)
    assert len(told) == 1 and told[0].filename == __file__
    assert best_model is None and not losses
    assert not any(trial.attributes for trial in result.trials) and "note" not in "".join(result.records()[0])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        run(careful)


GUIDE = Path(__file__).resolve().parents[3] / "docs" / "guides" / "shell.md"


def test_the_guide_for_shells_begins_with_what_runs(tmp_path: Path) -> None:
    block = GUIDE.read_text().split("```sh\n", 1)[1].split("```", 1)[0]
    first, *lines = (line.partition("#")[0].strip() for line in block.splitlines())
    assert first.startswith("pip install outbid") and lines[0] == "outbid init sweep.yaml" and "outbid up &" in lines
    place = Path(os.environ["OUTBID_BIN"]).resolve().parent
    env = {k: v for k, v in os.environ.items() if not k.startswith("OUTBID_") or k == "OUTBID_DEVICES"}
    env |= {"PATH": f"{place}:{env['PATH']}", "HOME": str(tmp_path)}
    up = None
    try:
        for line in lines:
            if line.endswith("&"):
                command = [*line.removesuffix("&").split(), "--api", "127.0.0.1:0"]  # another test may have the port
                up = subprocess.Popen(command, cwd=tmp_path, env=env, stdout=subprocess.PIPE, text=True)
                assert up.stdout is not None and up.stdout.readline()
                continue
            done = subprocess.run(
                line.split(),
                cwd=tmp_path,
                env=env,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=300,
            )
            assert done.returncode == 0, f"{line}: {done.stdout}{done.stderr}"
        assert re.search(r"\nbest loss \S+: trial \d+ at step 9\n  lr  ", done.stdout), "the winning configuration"
    finally:
        if up is not None:
            up.send_signal(signal.SIGINT)
            up.communicate(timeout=120)
