"""Optuna's samplers: the SDK's messages for them, and the values that their program draws."""

from __future__ import annotations

import hashlib
import math
import random
import sys
from collections.abc import Iterator
from typing import Any

import pytest

import outbid as ob
from outbid._search.space import Space, fill_space
from outbid._search.tuners import known_trials
from outbid._search.warm_start import check_earlier, start_warm
from outbid.plugin import Create, Exit, Report
from outbid.plugin._optuna import SAMPLERS, Sampler, distribution_of
from outbid.plugin._tuner import TunerSide, spec_of
from outbid.v1 import plugin_pb2, sweep_pb2

BOWL = {"x": ob.uniform(-5, 5), "y": ob.loguniform(1e-3, 1e3), "n": ob.integer(1, 9)}


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Restore Optuna's log level after the test."""
    optuna = pytest.importorskip("optuna")
    before = optuna.logging.get_verbosity()
    yield
    optuna.logging.set_verbosity(before)


def loss(config: dict[str, Any]) -> float:
    return float((config["x"] - 2) ** 2 + math.log(config["y"]) ** 2 + abs(config["n"] - 4))


def program(tuner: ob.Tuner, space: Space = BOWL, seed: int = 1) -> Sampler:
    """Return the program as the server starts it."""
    made = Sampler()
    made.spec = spec_of(spec(tuner, space, seed))
    made.start()
    made.spec.settings.check()
    return made


def spec(tuner: ob.Tuner, space: Any, seed: int) -> sweep_pb2.SweepSpec:
    message = sweep_pb2.SweepSpec(name="test", metric="loss", mode="min", tuner=tuner.to_proto())
    fill_space(message.space, space)
    message.tuner.seed = seed
    message.tuner.plugin.max_steps = 0
    return message


def draw(sampler: Sampler) -> dict[str, Any]:
    (create,) = list(sampler.ask(1))
    assert isinstance(create, Create)
    sampler.created += 1
    return dict(create.config)


def best(tuner: ob.Tuner, trials: int, seed: int) -> float:
    sampler, found = program(tuner, seed=seed), math.inf
    for n in range(trials):
        value = loss(draw(sampler))
        sampler.exited(Exit(n, 1, value, failed=False))
        found = min(found, value)
    return found


@pytest.mark.parametrize("tuner", [ob.TPE(startup=8), ob.CMAES(startup=5)], ids=lambda t: t._name)
def test_samplers_beat_chance(tuner: ob.Tuner) -> None:
    if isinstance(tuner, ob.CMAES):
        pytest.importorskip("cmaes")
    space, rng = program(ob.TPE()).spec.space, random.Random(1)
    chance = [min(loss(space.at({d.path: rng.random() for d in space})) for _ in range(40)) for _ in range(200)]
    assert sum(best(tuner, 40, seed) for seed in range(2)) / 2 < 0.7 * sum(chance) / 200


def test_a_sampler_is_a_plugin_with_a_rule() -> None:
    message = ob.ASHA(max_steps=27, min_steps=3, sampler=ob.TPE(startup=5), seed=7).to_proto()
    assert message.seed == 7 and message.plugin.max_steps == 27 and not message.plugin.command
    assert message.plugin.rule.asha.min_steps == 3 and message.plugin.rule.asha.sampler == "random"
    assert message.plugin.settings["sampler"] == "tpe" and message.plugin.settings["startup"] == 5
    assert ob.TPE(max_steps=4).to_proto().plugin.rule.random.max_steps == 4
    assert ob.Hyperband(max_steps=9, sampler="cmaes").to_proto().plugin.settings["sampler"] == "cmaes"
    assert {t._name for t in (ob.TPE, ob.GP, ob.CMAES, ob.NSGA2)} == set(SAMPLERS)
    with pytest.raises(ValueError, match="TPE uses the tuner's max_steps and seed"):
        ob.ASHA(max_steps=9, sampler=ob.TPE(max_steps=3)).to_proto()
    with pytest.raises(TypeError, match=r"write ob.TPE\(\)"):
        ob.ASHA(max_steps=9, sampler=ob.TPE).to_proto()  # type: ignore[arg-type]


def test_the_same_questions_have_the_same_answers_after_a_restart() -> None:
    tuner = ob.ASHA(max_steps=9, sampler=ob.TPE(startup=4))
    space = {**BOWL, "kind": ob.choice(["a", "b"]), "tilt": ob.when(ob.uniform(0, 1), "kind", in_=["b"])}
    side = TunerSide(program(tuner, space))
    ask = plugin_pb2.HandleRequest(events=[plugin_pb2.TunerEvent(ask=1)])
    for trial in range(12):
        side.handle(ask)
        side._tuner.reported(Report(trial, 1, float(trial % 5)))
    kept = side.snapshot(plugin_pb2.SnapshotRequest()).snapshot
    again = TunerSide(Sampler())
    again.configure(plugin_pb2.ConfigureRequest(protocol=1, spec=spec(tuner, space, 1), snapshot=kept))
    assert [side.handle(ask) for _ in range(3)] == [again.handle(ask) for _ in range(3)]


@pytest.mark.parametrize("name", ["tpe", "nsga2"])
def test_trials_that_were_stopped_teach_too(name: Any) -> None:
    """The sampler draws near values that were good at the first rung, even if no trial was trained to the end."""
    sampler = program(ob.ASHA(max_steps=81, sampler=name))
    for trial in range(40):
        value = loss(draw(sampler))
        sampler.reported(Report(trial, 1, value))
        if trial % 2:
            sampler.exited(Exit(trial, 1, value, failed=False))
    late = sorted(loss(draw(sampler)) for _ in range(7))[3]
    early = sorted(record["seen"][0][1] for record in sampler.state[:10])[5]
    assert late < 0.5 * early


def test_a_draw_makes_anew_only_trials_that_reported_since(monkeypatch: pytest.MonkeyPatch) -> None:
    """A rule that pauses trials ends none of them, so all of them are active until the sweep ends."""
    sampler = program(ob.ASHA(max_steps=81, sampler=ob.TPE(startup=5)))
    for trial in range(12):
        sampler.reported(Report(trial, 1, loss(draw(sampler))))
    sampler._known_trials()
    made: list[list[Any]] = []
    known = sampler._known

    def noted(record: dict[str, Any], *rest: Any) -> Any:
        made.append(record["seen"])
        return known(record, *rest)

    monkeypatch.setattr(sampler, "_known", noted)
    sampler.reported(Report(3, 81, 0.5))
    trials = sampler._known_trials()
    assert [seen[-1] for seen in made] == [[81, 0.5]]
    assert trials[3].value == 0.5 and all(t.value is None for n, t in enumerate(trials) if n != 3)


@pytest.mark.parametrize(("mode", "paused"), [("min", False), ("max", False), ("min", True), ("max", True)])
def test_draws_are_those_of_optunas_tpe(mode: str, paused: bool) -> None:
    """Caching trials does not change the draws, even while other trials are running or paused at a rung."""
    import optuna

    options: Any = {"n_startup_trials": 4, "multivariate": True, "constant_liar": True}
    asked = spec(ob.ASHA(max_steps=9, sampler=ob.TPE(startup=4)) if paused else ob.TPE(startup=4), BOWL, 3)
    asked.mode = mode
    sampler, running = Sampler(), []
    sampler.spec = spec_of(asked)
    sampler.start()
    for number in range(40):
        study = optuna.create_study(direction="minimize" if mode == "min" else "maximize")
        study.add_trials([copy_of(trial) for trial in sampler._known_trials()])
        digest = hashlib.sha256(f"{sampler.spec.seed}/{number}".encode()).digest()
        study.sampler = optuna.samplers.TPESampler(seed=int.from_bytes(digest[:4], "big"), **options)
        drawn = study.ask({d.path: distribution_of(d) for d in sampler.spec.space})
        assert draw(sampler) == drawn.params
        running.append(number)
        while len(running) > 3:
            trial = running.pop((number * 7) % 4)
            value = math.nan if trial % 6 == 5 else loss(sampler.state[trial]["values"])
            if paused and trial % 3:
                sampler.reported(Report(trial, 1 + trial % 2 * 2, value))
            else:
                sampler.exited(Exit(trial, 9, value, failed=trial % 9 == 8))


def copy_of(trial: Any) -> Any:
    """Return a trial that Optuna creates from the same fields."""
    import optuna

    names = ("state", "values", "params", "distributions", "system_attrs", "intermediate_values")
    return optuna.trial.create_trial(**{name: getattr(trial, name) for name in names})


def test_draws_that_break_the_constraints_are_no_trials() -> None:
    sampler = program(ob.TPE(startup=2))
    for trial in range(30):
        draw(sampler)
        sampler.exited(Exit(trial, 0, math.nan, failed=True))
    assert len(sampler._known_trials()) == 0 and sampler._rejected() == 30


def test_trials_of_before_are_known() -> None:
    import optuna

    study = optuna.create_study()
    study.optimize(lambda t: loss({"x": t.suggest_float("x", -9, 9), "y": 1.0, "n": 4}), n_trials=20)
    prior = known_trials(study)
    assert len(prior) == 20 and set(prior[0]) == {"params", "value"}
    sampler = program(ob.TPE(prior=study))
    inside = [p for p in prior if -5 <= p["params"]["x"] <= 5]
    assert [t.value for t in sampler._known_trials()] == [p["value"] for p in inside]
    with pytest.raises(TypeError, match="prior must be an Optuna study, a result such as"):
        ob.TPE(prior=[{"x": 1}]).to_proto()


def test_a_study_warms_a_sweep() -> None:
    import optuna

    study = optuna.create_study(study_name="before")
    study.optimize(lambda t: loss({"x": t.suggest_float("x", -9, 9), "y": 1.0, "n": 4}), n_trials=20)
    check_earlier(study)
    warm = spec(ob.TPE(), BOWL, 1)
    start_warm(warm, study, lambda sweep: pytest.fail(sweep))
    best = sorted(study.trials, key=lambda t: t.value or 0.0)[:3]
    assert [dict(p) for p in warm.tuner.points] == [t.params for t in best if -5 <= t.params["x"] <= 5]
    assert len(warm.tuner.plugin.settings.fields["prior"].list_value.values) == 20
    warm.mode = "max"
    with pytest.raises(ValueError, match="the study 'before' has mode min, this sweep max"):
        start_warm(warm, study, lambda sweep: pytest.fail(sweep))
    with pytest.raises(ValueError, match="has 2 objectives, not one"):
        start_warm(warm, optuna.create_study(directions=["minimize"] * 2), lambda sweep: pytest.fail(sweep))


def test_what_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(ob.InvalidError, match=r"sampler: gp needs torch: pip install 'outbid\[optuna,torch\]'"):
        program(ob.GP())
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(ob.InvalidError, match=r"sampler: tpe needs optuna: pip install 'outbid\[optuna\]' where the"):
        program(ob.TPE())
