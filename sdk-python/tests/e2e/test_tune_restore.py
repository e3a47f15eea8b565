"""`Tuner.restore` continues with the same limits, scheduler and search, and with new arguments."""

from __future__ import annotations

import json
import math
import tempfile
import threading
from pathlib import Path
from typing import Any

import pytest

import outbid as ob
from outbid import tune
from outbid.tune._record import Run
from outbid.tune.schedulers import ASHAScheduler
from outbid.tune.search import Searcher

TRIALS = 4


def train(config: dict[str, Any], data: dict[str, Any]) -> None:
    """Report three times with checkpoints; configurations in `data["bad"]` fail at the second report.

    All trials except the first wait until the experiment was interrupted, and may have to save meanwhile.
    """
    start = 0
    while config["x"] and not Path(data["gate"]).exists():
        tune.report({"i": -1, "began": -1, "data": "", "loss": 9.0, "clock": 0})
        threading.Event().wait(0.02)
    if (checkpoint := tune.get_checkpoint()) is not None:
        start = int(Path(checkpoint.path, "n").read_text()) + 1
    for i in range(start, 3):
        if i == 1 and config["x"] in data["bad"]:
            raise RuntimeError("not yet")
        with tempfile.TemporaryDirectory() as place:
            Path(place, "n").write_text(str(i))
            metrics = {"i": i, "began": start, "data": data["name"], "loss": config["x"], "clock": i + 1}
            tune.report(metrics, checkpoint=tune.Checkpoint.from_directory(place))


class NeedsWords(Exception):
    """Cannot be unpickled like most exceptions: its `__init__` has other arguments."""

    def __init__(self, text: str, *, hint: str) -> None:
        super().__init__(text)
        self.hint = hint


class Interrupt(tune.Callback):
    """Raises KeyboardInterrupt when the first trial has ended."""

    def __init__(self, gate: Path) -> None:
        self.gate, self.ended = gate, 0

    def on_trial_complete(self, iteration: int, trials: Any, trial: Any, **_: Any) -> None:
        if not self.gate.exists():
            raise KeyboardInterrupt
        with self.gate.open("a") as file:
            file.write(f"{trial.trial_id}\n")


class Counted(Searcher):
    """Counts suggestions and records the ends of trials."""

    def __init__(self) -> None:
        super().__init__("loss", "min")
        self.suggested, self.ended = 0, list[str]()

    def suggest(self, trial_id: str) -> dict[str, Any]:
        self.suggested += 1
        return {"x": self.suggested - 1}

    def on_trial_complete(self, trial_id: str, result: Any = None, error: bool = False) -> None:
        self.ended.append(trial_id)


GRID = {"x": tune.grid_search(list(range(TRIALS)))}
FIRST, MENDED = {"name": "first", "bad": [0]}, {"name": "mended", "bad": list[int]()}
FINE = {"name": "first", "bad": list[int]()}

# How the experiment began (failing at once, raising or Ctrl-C), how it is restored, and the result of trial 0.
CASES: dict[str, dict[str, Any]] = {
    "interrupted": {"data": FINE, "again": FINE, "zero": ("first", 0)},
    "interrupted, new data": {"data": FINE, "again": MENDED, "zero": ("first", 0), "others": "mended"},
    "interrupted, scheduler": {"data": FINE, "again": FINE, "zero": ("first", 0), "scheduler": True},
    "fail_fast, resumed": {"data": FIRST, "again": MENDED, "fail_fast": True, "zero": ("mended", 1)},
    "raise, resumed": {"data": FIRST, "again": MENDED, "fail_fast": "raise", "zero": ("mended", 1)},
    "raise, restarted": {
        "data": FIRST, "again": MENDED, "fail_fast": "raise", "zero": ("mended", 0),
        "how": {"restart_errored": True},
    },
    "raise, search": {"data": FIRST, "again": MENDED, "fail_fast": "raise", "zero": ("mended", 1), "search": True},
}  # fmt: skip


@pytest.mark.usefixtures("real")
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_an_experiment_goes_on(case: dict[str, Any], tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    fail_fast, gate = case.get("fail_fast", False), tmp_path / "gate"
    search = Counted() if "search" in case else None
    tuner = tune.Tuner(
        tune.with_parameters(train, data={**case["data"], "gate": gate}),
        param_space=None if search else GRID,
        tune_config=tune.TuneConfig(
            metric="loss",
            mode="min",
            num_samples=TRIALS if search else 1,
            search_alg=search,
            scheduler=ASHAScheduler("clock", max_t=4, grace_period=3) if "scheduler" in case else None,
            max_concurrent_trials=1,
        ),
        run_config=tune.RunConfig(
            name="restored",
            storage_path=tmp_path,
            verbose=0,
            callbacks=[] if fail_fast else [Interrupt(gate)],
            failure_config=tune.FailureConfig(fail_fast=fail_fast),
        ),
    )
    folder = tmp_path / "restored"
    if fail_fast is True:
        assert tuner.fit().num_errors == 1
    else:
        with pytest.raises(
            RuntimeError if fail_fast else KeyboardInterrupt, match="not yet" if fail_fast else "continue with"
        ):
            tuner.fit()
    gate.touch()
    how = case.get("how", {"resume_errored": True} if fail_fast else {})
    again = tune.Tuner.restore(str(folder), tune.with_parameters(train, data={**case["again"], "gate": gate}), **how)
    grid: Any = again.fit()
    if not fail_fast:
        assert f"tune.Tuner.restore({str(folder)!r}, trainable=train).fit()" in capfd.readouterr().err
    assert grid.num_errors == 0 and [r.config["x"] for r in grid] == list(range(TRIALS))
    assert [r.metrics["i"] for r in grid] == [2] * TRIALS
    assert [r.metrics["training_iteration"] for r in grid] == [3] * TRIALS
    assert (grid[0].metrics["data"], grid[0].metrics["began"]) == case["zero"]
    # The trial that ran when the first one ended may have started with the old data.
    assert {r.metrics["data"] for r in grid[2:]} == {case.get("others", case["again"]["name"])}
    if not fail_fast:
        assert len(gate.read_text().split()) == TRIALS - 1  # the callback continues as well
    run = Run.load(folder)
    sweeps = [ob.attach(run.sweep), *(ob.attach(sweep) for sweep, _ in run.later)]
    for sweep in sweeps:
        assert limits(sweep).concurrency == 1
    if search:
        assert _learned(folder, 0).suggested == TRIALS and len(_learned(folder, 0).ended) >= TRIALS
    if "scheduler" in case:
        assert type(_learned(folder, 1)) is ASHAScheduler
        # Repeated reports of the interrupted trial are not passed on again.
        assert len(_learned(folder, 1)._brackets[0].levels[0][1]) >= TRIALS - 1


def limits(sweep: ob.SweepHandle) -> Any:
    """Return the server's limits of a sweep."""
    return sweep._client.spec(sweep.id).limits


def _learned(folder: Path, which: int) -> Any:
    from outbid.tune._searcher_state import learned

    found = learned(str(folder))
    assert found is not None
    return found[which]


@pytest.mark.usefixtures("real")
def test_what_has_not_begun_is_of_the_new_space_and_time_is_what_is_left(tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    config = tune.RunConfig(name="restored", storage_path=tmp_path, verbose=0, callbacks=[Interrupt(gate)])
    how = tune.TuneConfig(max_concurrent_trials=1, time_budget_s=600)
    space = {"x": tune.grid_search([0, 1, 2, 3]), "kept": "old"}
    bound = tune.with_parameters(train, data={**FINE, "gate": gate})
    with pytest.raises(KeyboardInterrupt):
        tune.Tuner(bound, param_space=space, tune_config=how, run_config=config).fit()
    clock = tmp_path / "restored" / ".running_time.json"
    spent = json.loads(clock.read_text())
    assert 0 < spent["seconds"] < 60 and spent["running_at"] is None
    clock.write_text(json.dumps({"seconds": 500, "running_at": None}))
    gate.touch()
    space = {"x": tune.grid_search([0, 1, 20, 30]), "kept": "new"}
    grid: Any = tune.Tuner.restore(str(tmp_path / "restored"), bound, param_space=space).fit()
    assert [(r.config["x"], r.config["kept"]) for r in grid][2:] == [(20, "new"), (30, "new")]
    assert (grid[0].config["x"], grid[0].config["kept"]) == (0, "old")
    again = ob.attach(Run.load(tmp_path / "restored").later[0][0])
    assert limits(again).wall_time == "100s"
    assert json.loads(clock.read_text())["seconds"] > 500


@pytest.mark.usefixtures("real")
def test_a_budget_does_not_run_while_an_experiment_is_interrupted(tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    config = tune.RunConfig(name="restored", storage_path=tmp_path, verbose=0, callbacks=[Interrupt(gate)])
    how = tune.TuneConfig(max_concurrent_trials=1, time_budget_s=600)
    bound = tune.with_parameters(train, data={**FINE, "gate": gate})
    with pytest.raises(KeyboardInterrupt):
        tune.Tuner(bound, param_space=GRID, tune_config=how, run_config=config).fit()
    clock = tmp_path / "restored" / ".running_time.json"
    clock.write_text(json.dumps({"seconds": -3600, "running_at": None}))  # as if it had been interrupted for an hour
    gate.touch()
    assert tune.Tuner.restore(str(tmp_path / "restored"), bound).fit().num_terminated == TRIALS
    run = Run.load(tmp_path / "restored")
    allowed = float(limits(ob.attach(run.sweep)).wall_time.rstrip("s"))  # since its submission some seconds ago
    assert not run.later and 3600 + 600 <= allowed < 3600 + 600 + 300


@pytest.mark.usefixtures("real")
def test_an_experiment_whose_first_trials_all_failed_goes_on(tmp_path: Path) -> None:
    """Restore all trials of a sweep that ended early: failed ones, those that ran then, and those not started."""
    mended = tmp_path / "mended"

    def fails(config: dict[str, Any]) -> None:
        if not mended.exists():
            while config["x"] == 1:  # runs until the sweep ends
                tune.report({"loss": math.nan})
                threading.Event().wait(0.05)
            raise NeedsWords(str(config["x"]), hint="mend it")
        tune.report({"loss": config["x"]})

    tuner = tune.Tuner(
        fails,
        param_space={"x": tune.grid_search(list(range(9)))},
        tune_config=tune.TuneConfig(metric="loss", mode="min", max_concurrent_trials=2),
        run_config=tune.RunConfig(name="hopeless", storage_path=tmp_path, verbose=0),
    )
    with pytest.warns(UserWarning, match="the experiment ended early, after 5 failed trials: .*only fail: NeedsWords"):
        grid: Any = tuner.fit()
    assert grid.num_errors == 5 and len(grid) < 9
    error = grid.errors[0]
    assert type(error) is NeedsWords and error.hint == "mend it" and str(error) == "0"
    assert "raise NeedsWords" in str(error.__cause__)
    mended.touch()
    again: Any = tune.Tuner.restore(str(tmp_path / "hopeless"), fails, resume_errored=True).fit()
    assert [r.metrics.get("loss") for r in again] == list(range(9)) and again.num_errors == 0
