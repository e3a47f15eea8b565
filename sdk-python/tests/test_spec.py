"""Spaces, tuners and sweeps as messages of the API, compared to a golden file, and invalid ones."""

from __future__ import annotations

import datetime
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from google.protobuf import json_format
from hypothesis import given
from hypothesis import strategies as st

import outbid as typed
from outbid._search.space import fill_space
from outbid.v1 import sweep_pb2 as pb

ob: Any = typed  # for tests of invalid arguments
GOLDEN = Path(__file__).parent / "testdata" / "sweeps.json"


def train(trial: typed.Trial) -> None: ...


def everything() -> typed.Sweep:
    made: typed.Sweep = ob.Sweep(
        train,
        {
            "uniform": ob.uniform(0, 1),
            "loguniform": ob.loguniform(1e-4, 1e-1),
            "quniform": ob.quniform(0, 1, 0.25),
            "qloguniform": ob.qloguniform(1, 100, 1),
            "integer": ob.integer(1, 9),
            "logint": ob.integer(1, 512, log=True, step=2),
            "randint": ob.randint(0, 10),
            "lograndint": ob.lograndint(1, 10),
            "qrandint": ob.qrandint(0, 10, 5),
            "qlograndint": ob.qlograndint(2, 10, 2),
            "choice": ob.choice([1, 2.5, "a", True, None, [1, 2], {"a": 1}]),
            "constant": ob.constant([1, 2]),
            "plain": "text",
            "number": np.float32(0.5),
            "optimizer": {
                "name": ob.choice(["sgd", "adam"]),
                "momentum": ob.when(ob.uniform(0, 1), "optimizer.name", in_=["sgd"]),
                "betas": ob.when({"one": 0.9, "two": ob.uniform(0.9, 1)}, "optimizer.name", in_=["adam"]),
            },
        },
        metric="accuracy",
        mode="max",
        tuner=ob.Hyperband(max_steps=81, eta=3, seed=7),
        resources=ob.Resources(devices=(1, 4), types=["V100"], exclude_types=["k80"], cpus=2.5, memory="4GiB"),
        trials=100,
        concurrency=8,
        steps=10_000,
        wall_time=datetime.timedelta(minutes=90),
        target=0.99,
        name="everything",
        constraints=["lr * batch < 10"],
        checkpoints=ob.Checkpoints(best=3, last=True, every=0.5),
        max_restarts=0,
        hang_timeout="10m",
        python="/opt/python",
        env={"OMP_NUM_THREADS": "1"},
        workdir="/data",
        fresh_process=True,
        tenant="vision",
        labels={"team": "a"},
    )
    return made


def sweeps() -> dict[str, typed.Sweep]:
    space = {"lr": ob.uniform(0, 1)}
    tuners: list[typed.Tuner] = [
        ob.Random(),
        ob.Random(max_steps=5, seed=3),
        ob.Grid(max_steps=5, points=3),
        ob.Sobol(max_steps=5),
        ob.SuccessiveHalving(max_steps=27, trials=9, sampler="sobol"),
        ob.Hyperband(81),
        ob.ASHA(max_steps=81, eta=4, min_steps=3, form="stop", brackets=2),
        ob.Median(max_steps=10, grace_steps=2, min_trials=5),
        ob.PBT(max_steps=100, interval=10, population=8, resample=0.0, factors=[0.5, 2]),
        ob.Plugin(["./mine", "--flag"], max_steps=5, settings={"depth": 3}),
        ob.PerformanceCurve(max_steps=100, interval=4, grace_steps=8, poor=0.1, keep=0.0, eta=4, sampler="sobol"),
        ob.FreezeThaw(max_steps=100, min_steps=3, poor=0.02),
        ob.Bayes(max_steps=5),
        ob.Auto(),
        ob.Median(max_steps=10, sampler="bayes"),
    ]
    found = {
        f"{i}-{type(t).__name__}": ob.Sweep(space=space, metric="loss", mode="min", tuner=t)
        for i, t in enumerate(tuners)
    }
    found["everything"] = everything()
    found["command"] = ob.Sweep(space=space, metric="loss", mode="min", program=["./train", "--lr={lr}"])
    found["shell"] = ob.Sweep(space=space, metric="loss", mode="min", program="train --lr={lr} > log")
    found["program"] = ob.Sweep(
        space=space,
        metric="loss",
        mode="min",
        program=ob.Program(["/bin/train.sh"], env={"LR": "{lr}"}, workdir="/tmp", grace="30s"),
        limits=ob.Limits(trials=3),
        utility=ob.Utility(80, decay=0.5, target="1h30m2.5s"),
    )
    found["external"] = ob.Sweep(space=space, metric="loss", mode="min", ask_timeout="1h")
    return found


def test_golden() -> None:
    """The Python objects equal their protojson messages. To regenerate, delete the file and run the test."""
    got = {name: sweep.to_dict() for name, sweep in sweeps().items()}
    if not GOLDEN.exists():
        GOLDEN.parent.mkdir(exist_ok=True)
        GOLDEN.write_text(json.dumps(got, indent=1, sort_keys=True) + "\n")
    assert got == json.loads(GOLDEN.read_text())


def test_golden_is_strict_protojson() -> None:
    for entry in json.loads(GOLDEN.read_text()).values():
        json_format.ParseDict(entry, pb.SweepSpec())  # raises for a field that is not in the schema


def test_bounds_as_documented() -> None:
    spec = everything()._spec.space
    assert spec["integer"].int.high == 9
    assert spec["randint"].int.high == 9, "Ray and numpy exclude the upper bound"
    assert spec["lograndint"].int.high == 9
    assert spec["qrandint"].int.high == 10, "but Ray's qrandint includes it"


def filled(space: Any) -> pb.SweepSpec:
    spec = pb.SweepSpec()
    fill_space(spec.space, space)
    return spec


BAD_SPACES: list[tuple[Any, type[Exception], str]] = [
    (lambda: ob.uniform(1, 1), ValueError, "uniform: high: 1 is not above low (1); for one fixed value use constant"),
    (lambda: ob.uniform(2, 1), ValueError, "high: 1 is not above low (2)"),
    (lambda: ob.uniform("0", 1), TypeError, "uniform: low must be a number, got '0'"),
    (lambda: ob.uniform(0, float("inf")), ValueError, "high must be finite"),
    (lambda: ob.uniform(float("nan"), 1), ValueError, "low must be finite"),
    (lambda: ob.loguniform(0, 1), ValueError, "loguniform: low: must be above 0 for a log range, got 0"),
    (lambda: ob.quniform(0, 1, 0), ValueError, "quniform: q must be above 0"),
    (lambda: ob.quniform(0, 1, 2), ValueError, "q=2 is wider than the range"),
    (lambda: ob.integer(1.5, 3), TypeError, "integer: low must be a whole number, got 1.5"),
    (lambda: ob.integer(True, 3), TypeError, "low must be a whole number"),
    (lambda: ob.integer(3, 1), ValueError, "integer: high: 1 is not above low (3)"),
    (lambda: ob.integer(0, 8, log=True), ValueError, "low: must be above 0 for a log range"),
    (lambda: ob.integer(0, 8, step=0), ValueError, "step must be at least 1"),
    (lambda: ob.integer(0, 1 << 64), ValueError, "must fit 64 bits"),
    (lambda: ob.randint(3, 3), ValueError, "low must not be above high - 1, got low=3, high - 1=2"),
    (lambda: ob.randint(0, 2.5), TypeError, "high must be a whole number"),
    (lambda: ob.choice([]), ValueError, "choice: values: is empty; list at least one value"),
    (lambda: ob.choice("abc"), TypeError, "choice: values must be a list"),
    (lambda: ob.choice(3), TypeError, "choice: values must be a list"),
    (lambda: ob.choice([ob.uniform(0, 1)]), TypeError, "a parameter cannot be a choice"),
    (lambda: ob.when(ob.uniform(0, 1), "a", in_=[]), ValueError, "in_ must not be empty"),
    (lambda: ob.when(ob.uniform(0, 1), "a", in_="sgd"), TypeError, "in_ must be a list"),
    (lambda: ob.when(ob.uniform(0, 1), "", in_=[1]), TypeError, "dotted path"),
    (lambda: ob.when(ob.when(1, "a", in_=[1]), "b", in_=[1]), ValueError, "has a condition already"),
    (lambda: filled({"a.b": 1}), ValueError, '"a.b" cannot name a parameter'),
    (lambda: filled([1]), TypeError, "must be a dict"),
    (lambda: filled({"a": {"b": [1, 2]}}), TypeError, "a.b: a list is ambiguous: write ob.choice"),
    (lambda: filled({"a": print}), TypeError, "got a function"),
]


@pytest.mark.parametrize(("make", "kind", "message"), BAD_SPACES)
def test_bad_spaces(make: Any, kind: type[Exception], message: str) -> None:
    with pytest.raises(kind) as caught:
        make()
    assert message in str(caught.value)


def bad(**changes: Any) -> Any:
    def make() -> typed.Sweep:
        given = {"train": train, "space": {"lr": ob.uniform(0, 1)}, "metric": "a", "mode": "max", **changes}
        made: typed.Sweep = ob.Sweep(**given)
        return made

    return make


BAD_SWEEPS: list[tuple[Any, type[Exception], str]] = [
    (bad(train=3), TypeError, "train must be a function of a trial, got int: 3"),
    (bad(program="x"), TypeError, "either a training function or a program"),
    (bad(train=None, program=[]), ValueError, "Program: give either command or shell"),
    (bad(space=None), TypeError, "space is missing"),
    (bad(metric=""), ValueError, "metric: is missing; name the reported value"),
    (bad(mode="up"), ValueError, 'mode: "up" is unknown; use max or min'),
    (bad(metric=["a", "b"], mode="min"), ValueError, "2 metrics, 1 modes"),
    (bad(metric=["a", "a"], mode=["min", "max"]), ValueError, "must not have duplicates"),
    (bad(points={"lr": 1}), TypeError, "points must be a list of configurations"),
    (bad(points=[3]), TypeError, "points[0] must be a configuration"),
    (bad(points={"lr": [1, 2]}), TypeError, "got a dict of lists, {'lr': [1, 2]}: give pandas.DataFrame(points)"),
    (bad(warm_start=3), TypeError, "warm_start must be a result"),
    (bad(stop={"loss": "about 3"}), ValueError, "stop: loss must be a number"),
    (lambda: ob.normal(0, 0), ValueError, "normal: sd must be above 0"),
    (lambda: ob.sample_from(3), TypeError, "expected a function of the configuration"),
    (bad(space={"a": ob.when({"b": ob.sample_from(len)}, "c", in_=[1])}), TypeError, "cannot hold ob.sample_from"),
    (lambda: ob.when(ob.sample_from(len), "a", in_=[1]), TypeError, "is only allowed in"),
    (bad(name="My Sweep"), ValueError, 'name: "My Sweep" is not a valid name; use lower-case letters'),
    (bad(name="a" * 43), ValueError, "end without a dash, 42 at most"),
    (bad(name="2fast"), ValueError, "start with a letter"),
    (bad(labels={"a": "b" * 1025}), ValueError, "the value of 'a' has 1,025 bytes, at most 1024 are allowed"),
    (bad(labels={"ü" * 32: ""}), ValueError, "has 64 bytes, at most 63 are allowed"),
    (bad(labels={f"a{i}": "b" for i in range(65)}), ValueError, "65 labels are too many, at most 64 are allowed"),
    (bad(labels={f"a{i}": "b" * 1000 for i in range(17)}), ValueError, "have 17,041 bytes together"),
    (bad(labels={"a": "\ud800"}), ValueError, "Sweep: labels['a'] must be valid Unicode"),
    (bad(tenant="\ud800"), ValueError, "Sweep: tenant must be valid Unicode"),
    (bad(metric="\ud800"), ValueError, "Sweep: metric must be text"),
    (bad(metric="m" * 257), ValueError, "Sweep: metric has 257 bytes, at most 256 are allowed"),
    (bad(tuner="asha"), TypeError, "tuner must be an outbid Tuner, got 'asha'"),
    (bad(trials=0), ValueError, "trials must be at least 1"),
    (bad(trials=1.5), TypeError, "trials must be a whole number"),
    (bad(trials=1, limits=ob.Limits(trials=2)), TypeError, "give trials either by itself or in limits"),
    (
        bad(wall_time="tomorrow"),
        ValueError,
        'wall_time: "tomorrow" is not a duration above 0; write a number and a unit',
    ),
    (bad(wall_time=-1), ValueError, "must be above 0 seconds"),
    (bad(utility=80), TypeError, "utility must be"),
    (bad(utility=ob.Utility(-1)), ValueError, "Utility: priority must be a finite number that is at least 0, got -1"),
    (bad(utility=ob.Utility(1, decay=math.inf)), ValueError, "Utility: decay must be a finite number"),
    (
        bad(utility=ob.Utility(1, target=-1)),
        ValueError,
        "Utility: target must be a finite number that is at least 0, got -1.0",
    ),
    (bad(utility=ob.Utility(1, target="soon")), ValueError, 'Utility: target: "soon" is not a duration above 0'),
    (bad(max_restarts=-1), ValueError, "max_restarts: must be from 0 to 1000, got -1"),
    (bad(constraints="a < b"), TypeError, "constraints must be a list"),
    (bad(resources=ob.Resources(devices=0)), ValueError, "devices must be 1 <= min <= max, got 0"),
    (bad(resources=ob.Resources(devices=0.5)), TypeError, "devices must be a whole count or (min, max), got 0.5"),
    (bad(resources=ob.Resources(devices=(1, 1.5))), TypeError, "devices must be a whole count or (min, max)"),
    (bad(resources=ob.Resources(devices=(4, 2))), ValueError, "devices must be 1 <= min <= max"),
    (bad(resources=ob.Resources(types="v100")), TypeError, "types must be a list"),
    (
        bad(resources=ob.Resources(cpus=-1)),
        ValueError,
        "cpus: must be a number of CPU cores, or 0 for no requirement, got -1",
    ),
    (bad(checkpoints=ob.Checkpoints(best=-1)), ValueError, "best must be a whole number"),
    (bad(tuner=ob.Hyperband(0)), ValueError, "Hyperband: max_steps must be at least 1, got 0"),
    (bad(tuner=ob.Hyperband(9, eta=1)), ValueError, "eta must be at least 2"),
    (bad(tuner=ob.Hyperband(9, min_steps=10)), ValueError, "min_steps must not be above max_steps"),
    (bad(tuner=ob.ASHA(9, form="both")), ValueError, "form must be 'promote' or 'stop', got 'both'"),
    (bad(tuner=ob.FreezeThaw(0)), ValueError, "max_steps must be at least 1"),
    (bad(tuner=ob.FreezeThaw(10, min_steps=11)), ValueError, "min_steps must not be above max_steps, got 11 and 10"),
    (bad(tuner=ob.FreezeThaw(10, poor=0)), ValueError, "poor must be above 0 and below 1"),
    (bad(tuner=ob.FreezeThaw(10, sampler="dice")), ValueError, "sampler"),
    (
        bad(tuner=ob.ASHA(9, sampler=ob.Random())),
        TypeError,
        "ASHA: sampler must be a name such as 'sobol', or one that",
    ),
    (bad(tuner=ob.PerformanceCurve(0)), ValueError, "max_steps must be at least 1"),
    (
        bad(tuner=ob.PerformanceCurve(10, interval=11)),
        ValueError,
        "interval must not be above max_steps, got 11 and 10",
    ),
    (bad(tuner=ob.PerformanceCurve(10, grace_steps=-1)), ValueError, "grace_steps must be at least 0"),
    (bad(tuner=ob.PerformanceCurve(10, poor=0)), ValueError, "poor must be above 0 and below 1"),
    (bad(tuner=ob.PerformanceCurve(10, keep=2)), ValueError, "keep must be from 0 to 1"),
    (bad(tuner=ob.PerformanceCurve(10, eta=1)), ValueError, "eta must be at least 2"),
    (bad(tuner=ob.PBT(10, 0)), ValueError, "interval must be at least 1"),
    (bad(tuner=ob.PBT(10, 1, quantile=0.7)), ValueError, "quantile must be above 0 and at most 0.5"),
    (bad(tuner=ob.PBT(10, 1, factors=[0])), ValueError, "factors must be above 0"),
    (bad(tuner=ob.PBT(10, 1, factors=2)), TypeError, "PBT: factors must be a list of numbers, got 2"),
    (bad(tuner=ob.TPE(prior=5)), TypeError, "prior must be an Optuna study, a result such as"),
    (bad(tuner=ob.TPE(prior="digits-1")), TypeError, "with params and value, got 'digits-1'"),
    (bad(tuner=ob.Random(seed="a")), TypeError, "Random: seed must be a whole number, got 'a'"),
    (bad(tenant=5), TypeError, "Sweep: tenant must be text, got 5"),
    (bad(labels=["a"]), TypeError, "Sweep: labels must be a dict such as"),
    (bad(env="A=1"), TypeError, "Sweep: env must be a dict such as"),
    (bad(workdir=5), TypeError, "Sweep: workdir must be a path, got 5"),
    (bad(python=5), TypeError, "Sweep: python must be a path, got 5"),
    (bad(weight="2"), TypeError, "Sweep: weight must be a number, got '2'"),
    (bad(target="0.9"), TypeError, "target must be a number, got '0.9'"),
    (bad(limits={"trials": 5}), TypeError, "limits must be an outbid Limits, got {'trials': 5}"),
    (bad(limits={"trials": 5}, trials=2), TypeError, "limits must be an outbid Limits, got {'trials': 5}"),
    (bad(constraints=[len]), TypeError, "Sweep: constraints[0] must be one of the conditions such as"),
    (bad(loggers=typed.Callback()), TypeError, "loggers must be a list of outbid.Callback objects"),
    (bad(train=None, program=5), TypeError, "Sweep: program must be a list of a command's words"),
    (bad(resources=ob.Resources(memory=4)), TypeError, 'Resources: memory must be an amount such as "4GiB", got 4'),
    (bad(resources=ob.Resources(cpus="2")), TypeError, "Resources: cpus must be a number, got '2'"),
    (
        lambda: ob.Sweep(train, {"a": 1}, metric="m", mode="max").run(timeout="1h"),
        TypeError,
        "timeout must be a number",
    ),
    (
        lambda: ob.Sweep(train, {"a": 1}, metric="m", mode="max").run(callbacks=len),
        TypeError,
        "callbacks must be a list",
    ),
    (bad(tuner=ob.Random(seed=-1)), ValueError, "seed must be a whole number from 0"),
    (bad(tuner=ob.Plugin("./mine")), ValueError, "command must be a list"),
]


@pytest.mark.parametrize(("make", "kind", "message"), BAD_SWEEPS)
def test_bad_sweeps(make: Any, kind: type[Exception], message: str) -> None:
    with pytest.raises(kind) as caught:
        make()
    assert message in str(caught.value)


@given(st.floats(-1e9, 1e9), st.floats(-1e9, 1e9))
def test_any_interval_is_taken_or_refused(low: float, high: float) -> None:
    if low < high:
        message = ob.uniform(low, high).to_proto()
        assert (message.float.low, message.float.high) == (low, high)
    else:
        with pytest.raises(ValueError, match="is not above low"):
            ob.uniform(low, high)


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(st.lists(JSON, min_size=1, max_size=5))
def test_choices_survive(values: list[Any]) -> None:
    message = ob.choice(values).to_proto()
    assert [json_format.MessageToDict(v) for v in message.choice.values] == values


def test_names_are_made_from_functions() -> None:
    def train_Digits_2(trial: Any) -> None: ...

    def name(train: Any = None, **more: Any) -> str:
        return typed.Sweep(train, {}, metric="a", mode="max", **more)._spec.name

    assert name(train_Digits_2) == "train-digits-2"
    assert name(lambda t: None) == "lambda"
    train_Digits_2.__name__ = "_2_" + "very_" * 20 + "long"
    assert name(train_Digits_2) == "very-very-very-very-very-very-very-very-ve"
    train_Digits_2.__name__ = "größe_損失"
    assert name(train_Digits_2) == "gr-e"
    assert name(program=["/opt/bin/solve.sh", "x"]) == "solve"
    assert name() == "sweep"


def _generator(trial: Any) -> Any:
    yield trial


async def _coroutine(trial: Any) -> None: ...


@pytest.mark.parametrize(
    ("train", "message"),
    [
        (_generator, "_generator is async or yields; use a plain function"),
        (_coroutine, "_coroutine is async or yields"),
        (lambda: None, "called with one argument, the trial, which does not suit .*: too many"),
        (lambda trial, data: None, "missing a required argument: 'data'; functools.partial"),
        (dict, r"got the class dict; pass an instance that can be called: dict\(\.\.\.\)"),
    ],
)
def test_functions_that_cannot_train(train: Any, message: str) -> None:
    with pytest.raises(TypeError, match=message):
        ob.Sweep(train, {"x": ob.uniform(0, 1)}, metric="a", mode="max")


def test_what_numpy_and_pathlib_hold_is_taken(tmp_path: Path) -> None:
    tuner = ob.Random(np.int64(9), seed=np.int64(3))
    space = {"a": ob.uniform(0, 1)}
    spec = ob.Sweep(train, space, metric="m", mode="max", tuner=tuner, trials=np.int64(2), workdir=tmp_path).to_dict()
    assert spec["tuner"] == {"seed": "3", "random": {"max_steps": "9"}}
    assert spec["limits"]["trials"] == 2 and spec["function"]["workdir"] == str(tmp_path)


def test_tuner_without_parentheses() -> None:
    tuner: Any = ob.Hyperband
    with pytest.raises(TypeError, match=r"tuner must be an outbid Tuner, got the class: write ob\.Hyperband\(\.\.\.\)"):
        ob.Sweep(None, {"x": ob.uniform(0, 1)}, metric="a", mode="max", tuner=tuner)


def test_preview_is_a_table_in_notebooks() -> None:
    preview = ob.Preview(9, 13, (ob.Rung(1, 3, 9, 27),), 0.5, ({"name": "<b>", "lr": 0.25},), ("few & far",))
    page = preview._repr_html_()
    assert "9 trials, 13 steps, 0.5 device-hours" in page
    assert "few &amp; far" in page
    assert "<td>27</td>" in page
    assert "name=&lt;b&gt; lr=0.25" in page


def test_a_utility_says_its_target_in_any_unit() -> None:
    spans: list[Any] = [5400, "1h30m", "90m", "5400s", datetime.timedelta(minutes=90)]
    assert {ob.Utility(80, 1, span).to_proto().target for span in spans} == {5400.0}
    assert ob.Utility(80).to_proto() == pb.Utility(priority=80)
    assert ob.Utility(1, target="250ms").to_proto().target == 0.25


@pytest.mark.parametrize(("given", "sent"), [(None, None), (False, None), (True, "on"), ("digits-1", None)])
def test_only_warm_start_true_asks_for_what_the_server_remembers(given: Any, sent: str | None) -> None:
    sweep = typed.Sweep(train, {"a": ob.uniform(0, 1)}, metric="m", mode="max", warm_start=given)
    assert sweep.to_dict().get("memory") == sent


def test_rows_of_a_table_are_points() -> None:
    pandas = pytest.importorskip("pandas")
    rows = pandas.DataFrame({"lr": [0.1, 0.2], "layers": [2, None], "kind": ["sgd", None]}, index=[7, 3])
    space = {"lr": ob.uniform(0, 1), "layers": ob.integer(1, 4), "kind": ob.choice(["sgd", "adam"])}
    sweep = ob.Sweep(print, space, metric="loss", mode="min", points=rows)
    assert sweep.to_dict()["tuner"]["points"] == [{"lr": 0.1, "layers": 2.0, "kind": "sgd"}, {"lr": 0.2}]
