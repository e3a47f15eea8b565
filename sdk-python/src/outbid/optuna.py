"""Optuna's objectives on Outbid, and Outbid's sweeps in Optuna. Needs the extra outbid[optuna].

    import optuna
    import outbid.optuna

    def objective(trial):
        x = trial.suggest_float("x", -5, 5)
        for step in range(10):
            trial.report(..., step)
            if trial.should_prune():
                raise optuna.TrialPruned()
        return ...

    study = outbid.optuna.optimize(objective, n_trials=100)
    print(study.best_params)

Each trial of the study is a trial of a sweep, and runs where Outbid has a device free.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal

import optuna
from optuna.trial import TrialState

from outbid._client import Client, default_client
from outbid._resources import Resources
from outbid._study import ATTRIBUTE, kept, to_study
from outbid._sweep import Sweep
from outbid._training import Trial
from outbid._tuners import Random

__all__ = ["optimize", "to_study"]

Objective = Callable[[optuna.Trial], float | Sequence[float]]
Direction = Literal["minimize", "maximize"]


def optimize(
    objective: Objective,
    n_trials: int,
    *,
    direction: Direction | None = None,
    directions: Sequence[Direction] | None = None,
    sampler: optuna.samplers.BaseSampler | None = None,
    pruner: optuna.pruners.BasePruner | None = None,
    storage: str | None = None,
    study_name: str | None = None,
    n_jobs: int | None = None,
    resources: Resources | None = None,
    timeout: float | None = None,
    display: bool = True,
    client: Client | None = None,
) -> optuna.Study:
    """Run an objective as Optuna's `Study.optimize` does, but on Outbid's devices, and return the study.

    The objective is called as it is: `trial` is Optuna's own. `direction` is "minimize" if left out; `directions`, one
    for each, are those of an objective that returns several values. `sampler` and `pruner` are Optuna's, TPE and the
    median if left out, and every process that runs trials has a copy of them. What the objective reports, and returns,
    is the sweep's metric "value"; several are "values_0" and so on, as in Optuna's tables. An objective that raises
    TrialPruned ends its trial as pruned; one that raises anything else fails, and is not tried again.

    `storage` is where the study is kept: a URL of Optuna's, which every worker must reach, or a file of a journal that
    ends with ".log". Left out, it is a journal in a temporary folder, which suits a server on this machine only. A
    study that the storage has under that `study_name` goes on. `n_jobs` is how many trials run at once at the most.
    Where `timeout` seconds are over TimeoutError is raised; the sweep goes on.
    """
    if not callable(objective):
        raise TypeError(f"optimize: objective must be a function of a trial, got {objective!r:.80}")
    client = client or default_client()
    if storage is None:
        if not client.local:
            raise ValueError(
                "optimize: the server is on another machine: name a storage that its workers reach, such as "
                'storage="postgresql://..." or a file "study.log" in a folder that all of them share'
            )
        storage = str(Path(tempfile.mkdtemp(prefix="outbid-optuna-")) / "study.log")
    study = optuna.create_study(
        storage=kept(storage),
        study_name=study_name,
        direction=direction,
        directions=directions,
        sampler=sampler,
        pruner=pruner,
        load_if_exists=study_name is not None,
    )
    run = partial(
        _train, objective=objective, storage=storage, name=study.study_name, sampler=study.sampler, pruner=study.pruner
    )
    sweep = Sweep(
        run,
        {"study": study.study_name},
        metric=_metrics(study),
        mode=["max" if way == optuna.study.StudyDirection.MAXIMIZE else "min" for way in study.directions],
        tuner=Random(),
        trials=n_trials,
        concurrency=n_jobs,
        resources=resources,
        max_restarts=0,
        name=_name(objective),
    )
    sweep.run(display=display, timeout=timeout, client=client)
    return study


def _train(
    trial: Trial,
    *,
    objective: Objective,
    storage: str,
    name: str,
    sampler: optuna.samplers.BaseSampler,
    pruner: optuna.pruners.BasePruner,
) -> None:
    """Run one trial of the study in a worker's process."""
    sampler.reseed_rng()  # every process has a copy, which would draw the same
    study = optuna.load_study(study_name=name, storage=kept(storage), sampler=sampler, pruner=pruner)
    asked = study.ask()
    asked.set_user_attr(ATTRIBUTE, trial.id)
    own, done = asked.report, 0

    def report(value: float, step: int) -> None:
        nonlocal done
        own(value, step)
        if step >= done:
            done = step + 1
            trial.report({"value": float(value)}, step=done)

    asked.report = report  # type: ignore[method-assign]
    try:
        values = _values(study, objective(asked))
    except optuna.TrialPruned:
        study.tell(asked, state=TrialState.PRUNED)
        return
    except BaseException:
        study.tell(asked, state=TrialState.FAIL)
        raise
    study.tell(asked, values)
    trial.report(dict(zip(_metrics(study), values, strict=True)), step=done + 1)


def _metrics(study: optuna.Study) -> list[str]:
    """Return what the sweep calls the study's values."""
    count = len(study.directions)
    return ["value"] if count == 1 else [f"values_{index}" for index in range(count)]


def _values(study: optuna.Study, returned: float | Sequence[float]) -> list[float]:
    """Return what an objective returned, one for each of the study's directions."""
    values = [float(value) for value in (returned if isinstance(returned, Sequence) else [returned])]
    if len(values) != len(study.directions):
        ways = ", ".join(way.name.lower() for way in study.directions)
        raise ValueError(f"the objective returned {returned!r}: the study takes {len(study.directions)} ({ways})")
    return values


def _name(objective: Any) -> str:
    made = re.sub(r"[^a-z0-9]+", "-", getattr(objective, "__name__", "objective").lower()).strip("-")
    return made[:40].strip("-") or "objective"
