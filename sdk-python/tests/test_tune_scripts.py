"""Other parts of Ray Tune scripts: names, invalid settings, reporters, Ray's tasks and actors."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pytest

from outbid import tune
from outbid.tune._sample import Categorical
from outbid.tune._trial import Trial
from outbid.tune.schedulers import AsyncHyperBandScheduler, HyperBandScheduler, MedianStoppingRule
from test_tune import Counts


def test_who_names_an_unknown_trainable_may_expect_either_error() -> None:
    with pytest.raises(tune.TuneError, match="no trainable 'nobody'"):
        tune.run("nobody")


@pytest.mark.parametrize("kind", [AsyncHyperBandScheduler, HyperBandScheduler, MedianStoppingRule])
def test_a_scheduler_that_compares_trials_wants_a_metric(kind: Any, tmp_path: Path) -> None:
    config = tune.RunConfig(storage_path=tmp_path)
    for wrapped in (kind(), tune.schedulers.ResourceChangingScheduler(kind())):
        with pytest.raises(ValueError, match=f"{type(wrapped).__name__} compares trials: give metric and mode"):
            tune.Tuner(print, tune_config=tune.TuneConfig(scheduler=wrapped), run_config=config).fit()


@pytest.mark.parametrize("name", ["checkpoint_frequency", "checkpoint_at_end"])
def test_a_function_saves_by_itself(name: str) -> None:
    config = tune.RunConfig(checkpoint_config=tune.CheckpointConfig(**{name: True}))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=f"{name} is for a tune.Trainable"):
        tune.Tuner(print, run_config=config).fit()


def test_tasks_and_actors_of_a_script_run_in_its_process() -> None:
    from outbid.tune import _ray_shim

    ray: Any = _ray_shim

    @ray.remote  # type: ignore[untyped-decorator]
    def double(x: int) -> int:
        return 2 * x

    @ray.remote(num_returns=2)  # type: ignore[untyped-decorator]
    def pair(x: int) -> tuple[int, int]:
        return x, x + 1

    refs = [double.remote(i) for i in range(3)]
    assert ray.get(refs) == [0, 2, 4] and ray.get(double.options(num_cpus=2).remote(refs[2])) == 8
    assert ray.get(pair.remote(1)) == [1, 2]
    assert ray.wait(refs, num_returns=2) == (refs[:2], refs[2:])

    @ray.remote
    class Counter:
        def __init__(self, n: int) -> None:
            self.n = n

        def add(self, k: int = 1) -> int:
            self.n += k
            return self.n

    made: Any = Counter
    counter = made.options(name="counter").remote(5)
    assert ray.get([counter.add.remote(), ray.get_actor("counter").add.remote(k=4)]) == [6, 10]
    with pytest.raises(tune.UnsupportedError, match="report its values"):
        pickle.dumps(counter)
    ray.kill(counter)
    with pytest.raises(ray.exceptions.RayActorError, match="was killed"):
        ray.get(counter.add.remote())
    with pytest.raises(ValueError, match="no actor named 'counter'"):
        ray.get_actor("counter")


def test_what_a_task_raises_comes_with_its_result() -> None:
    from outbid.tune import _tasks

    failed = _tasks.remote(lambda: 1 / 0).remote()
    with pytest.raises(ZeroDivisionError, match="division by zero") as caught:
        _tasks.get(failed)
    assert isinstance(caught.value, _tasks.RayTaskError) and isinstance(caught.value.cause, ZeroDivisionError)
    # A task that gets it as an argument fails in the same way.
    with pytest.raises(ZeroDivisionError):
        _tasks.get(_tasks.remote(lambda x: x).remote(failed))
    with pytest.raises(TypeError, match="remote"):
        _tasks.remote(print)()
    with pytest.raises(ValueError, match="expected an ObjectRef"):
        _tasks.get(5)


def test_how_a_domain_is_drawn_can_be_asked() -> None:
    from outbid.tune.search.sample import LogUniform, Normal, Quantized, Uniform  # type: ignore[import-not-found]

    assert isinstance(tune.uniform(0, 1).get_sampler(), Uniform)
    assert isinstance(tune.lograndint(1, 9).get_sampler(), LogUniform)
    assert isinstance(tune.choice([1]).get_sampler(), Uniform)
    assert str(Categorical([1], grid=True).get_sampler()) == "Grid"
    normal = tune.randn(1, 2).get_sampler()
    assert isinstance(normal, Normal) and (normal.mean, normal.sd) == (1, 2)
    steps = tune.qloguniform(0.1, 1, 0.1).get_sampler()
    assert isinstance(steps, Quantized) and steps.q == 0.1 and isinstance(steps.get_sampler(), LogUniform)
    assert repr(tune.uniform(1, 8).loguniform().quantized(2)) == repr(tune.qloguniform(1, 8, 1).quantized(2))


def test_names_that_old_scripts_import() -> None:
    from outbid.tune.registry import get_trainable_cls, is_function_trainable  # type: ignore[import-not-found]
    from outbid.tune.trainable import FunctionTrainable  # type: ignore[import-not-found]
    from outbid.tune.trial import Trial as moved  # type: ignore[import-not-found]

    from outbid.air.constants import TRAINING_ITERATION
    from outbid.tune.callback import CallbackList
    from outbid.tune.utils import deep_update, merge_dicts

    assert moved is Trial and TRAINING_ITERATION == "training_iteration"
    tune.register_trainable("counts", Counts)
    assert get_trainable_cls("counts") is Counts and not is_function_trainable("counts")
    with pytest.raises(tune.UnsupportedError, match="training function itself"):
        FunctionTrainable({})
    assert merge_dicts({"a": {"x": 1}, "b": 2}, {"a": {"y": 3}}) == {"a": {"x": 1, "y": 3}, "b": 2}
    assert deep_update({"a": {}}, {"a": {"z": 1}}, allow_new_subkey_list=["a"]) == {"a": {"z": 1}}
    with pytest.raises(KeyError, match="there is no 'c' among 'a'"):
        deep_update({"a": 1}, {"c": 1})
    seen: list[Any] = []

    class Notes(tune.Callback):
        def on_trial_complete(self, iteration: int, trials: Any, trial: Any, **info: Any) -> None:
            seen.append((self, iteration))

    both = CallbackList([Notes(), Notes()])
    both.on_trial_complete(3, [], None)  # type: ignore[arg-type]
    both.on_trial_error(3, [], None)  # type: ignore[arg-type]
    assert [n for _, n in seen] == [3, 3] and seen[0][0] is not seen[1][0]


def test_words_of_resume() -> None:
    from outbid.tune._run import resume_config

    kind = tune.ResumeConfig.ResumeType
    for word, unfinished, errored in [
        (True, kind.RESUME, kind.SKIP),
        ("AUTO", kind.RESUME, kind.SKIP),
        ("AUTO+ERRORED", kind.RESUME, kind.RESUME),
        ("LOCAL+RESTART_ERRORED", kind.RESUME, kind.RESTART),
        ("ERRORED_ONLY", kind.SKIP, kind.RESUME),
        ("AUTO+RESTART_ERRORED_ONLY", kind.SKIP, kind.RESTART),
    ]:
        found = resume_config(word)  # type: ignore[arg-type]
        assert (found.unfinished, found.errored) == (unfinished, errored), word
    with pytest.raises(tune.UnsupportedError, match="a new experiment"):
        tune.ResumeConfig(finished=kind.RESUME)


def test_a_reporter_shows_the_columns_that_it_was_told() -> None:
    trials = [Trial(i, f"t_{i:05d}", "f", {"lr": 0.5 * i, "n": {"k": "a long value"}}) for i in range(3)]
    for trial, loss in zip(trials, (3.0, 1.0, 2.0), strict=True):
        trial.status, trial.last_result = Trial.TERMINATED, {"loss": loss, "deep": {"acc": 7}, "pid": 1}
    trials[2].status = Trial.ERROR
    reporter = tune.CLIReporter(
        metric_columns={"loss": "L"}, parameter_columns=["lr", "n/k"], sort_by_metric=True, max_column_length=8,
        max_progress_rows=2,
    )  # fmt: skip
    reporter.add_metric_column("deep/acc", "acc")
    with pytest.raises(ValueError, match="column 'deep/acc' already"):
        reporter.add_metric_column("deep/acc")
    reporter.setup(0.0, 3, metric="loss", mode="min")
    lines = reporter._progress_str(trials, False).splitlines()
    at = next(i for i, line in enumerate(lines) if "Trial name" in line)
    assert [cell.strip() for cell in lines[at].split("|")[1:-1]] == ["Trial name", "status", "lr", "n/k", "L", "acc"]
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines[at + 2 : at + 4]]
    assert rows[0] == ["f_t_00001", "TERMINATED", "0.5", "a lon...", "1", "7"] and rows[1][0] == "f_t_00002"
    text = "\n".join(lines)
    assert "best trial: t_00001 with loss=1.0" in text and "1 more trials not shown" in text
    assert "Number of trials: 3/3 (1 ERROR, 2 TERMINATED)" in text and "Number of errored trials: 1" in text
    assert "not shown" not in reporter._progress_str(trials, True)


def test_a_reporter_that_says_nothing_leaves_it_to_outbids_table() -> None:
    class Ends(tune.CLIReporter):
        def should_report(self, trials: Any, done: bool = False) -> bool:
            return done

    assert not tune.CLIReporter().own and not tune.JupyterNotebookReporter(max_progress_rows=5).own
    assert Ends().own and tune.CLIReporter(metric_columns=["loss"]).own
    guessed = Ends()
    trial = Trial(0, "t_00000", "f", {"x": 1})
    trial.last_result, trial.evaluated_params = {"mean_loss": 1.0, "own": 2, "text": "t", "pid": 3}, {"x": 1}
    head = next(line for line in guessed._progress_str([trial], True).splitlines() if "Trial name" in line)
    assert [cell.strip() for cell in head.split("|")[1:-1]] == ["Trial name", "status", "x", "loss", "own"]


def test_results_by_ids() -> None:
    trial = Trial(0, "t_00000", "f", {"lr": 1, "net": {"n": 2}})
    trial.history = [{"loss": 2.0, "n": 1}, {"loss": 1.0, "n": 2}, {"loss": 3.0, "n": 3}]
    trial.last_result = trial.history[-1]
    analysis = tune.ExperimentAnalysis(trials=[trial])
    assert list(analysis.trial_dataframes) == list(analysis.get_all_configs()) == ["t_00000"]
    assert analysis.get_all_configs(prefix=True) == {"t_00000": {"config/lr": 1, "config/net/n": 2}}
    grid = tune.ResultGrid(tune.ExperimentAnalysis(trials=[trial], default_metric="loss", default_mode="min"))
    assert list(grid.get_dataframe("loss", "min")["n"]) == [2]
    assert list(grid.get_dataframe("loss")["n"]) == list(grid.get_dataframe()["n"]) == [3]
    with pytest.raises(ValueError, match="needs a metric"):
        grid.get_dataframe(filter_mode="min")
    with pytest.raises(TypeError, match=r"experiment_analysis must be a tune.ExperimentAnalysis.*, got 'results'"):
        tune.ResultGrid("results")


def test_a_trainable_by_itself_has_the_results_that_ray_has() -> None:
    one = Counts({})
    one.train()
    two = Counts({})
    two.restore(one.save())
    result = two.train()
    assert {"pid", "hostname", "node_ip", "date", "timestamp", "trial_id"} <= result.keys()
    assert result["training_iteration"] == 2 and result["iterations_since_restore"] == 1
    assert 0 <= result["time_since_restore"] <= result["time_total_s"]
