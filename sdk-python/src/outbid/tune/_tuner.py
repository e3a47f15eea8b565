"""Tuner: runs an experiment of a Ray Tune script."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from outbid._core import function_pickle
from outbid.tune._config import ResumeConfig, RunConfig, TuneConfig
from outbid.tune._driver import run_new
from outbid.tune._errors import BadArgumentError, unsupported
from outbid.tune._plan import name_of
from outbid.tune._record import STATE, Run
from outbid.tune._registry import find_trainable
from outbid.tune._results import ResultGrid
from outbid.tune.analysis import ExperimentAnalysis


class Tuner:
    """Runs a training function or a Trainable over a parameter space."""

    def __init__(
        self,
        trainable: Any = None,
        *,
        param_space: dict[str, Any] | None = None,
        tune_config: TuneConfig | None = None,
        run_config: RunConfig | None = None,
        _restored: Any = None,
        **more: Any,
    ) -> None:
        if more:
            unsupported(f"{next(iter(more))} of Tuner", "leave it out")
        if trainable is None and _restored is None:
            raise BadArgumentError("Tuner: give a training function or a tune.Trainable")
        if tune_config is not None and not isinstance(tune_config, TuneConfig):
            raise TypeError(f"Tuner: tune_config must be a tune.TuneConfig, got {tune_config!r:.80}")
        if param_space is not None and not isinstance(param_space, Mapping):
            raise ValueError(f"Tuner: param_space must be a dict, got {param_space!r:.80}")
        if trainable is not None:
            find_trainable(trainable)
            function_pickle.dump(trainable)
        self._trainable = trainable
        self._space: Any = param_space
        self._tune = tune_config or TuneConfig()
        self._run = run_config or RunConfig()
        self._restored = _restored
        self._grid: ResultGrid | None = None

    def fit(self) -> ResultGrid:
        """Run the experiment and return its results. A failed trial is included with its error."""
        if self._restored is not None:
            made = self._restored.run()
        else:
            made = run_new(self._trainable, self._space, self._tune, self._run)
        self._grid = _grid(made, self._tune)
        return self._grid

    def get_results(self) -> ResultGrid:
        """Return the results of the experiment that `fit` ran, or of the restored one."""
        if self._grid is not None:
            return self._grid
        if self._restored is None:
            raise RuntimeError("get_results: run the experiment with fit() first, or restore one")
        return _grid(self._restored.results(), self._tune)

    @classmethod
    def can_restore(cls, path: str | os.PathLike[str], storage_filesystem: Any = None) -> bool:
        """Return whether a directory contains an experiment."""
        return (_folder(path) / STATE).is_file()

    @classmethod
    def restore(
        cls,
        path: str | os.PathLike[str],
        trainable: Any = None,
        resume_unfinished: bool = True,
        resume_errored: bool = False,
        restart_errored: bool = False,
        param_space: dict[str, Any] | None = None,
        storage_filesystem: Any = None,
        _resume_config: Any = None,
    ) -> Tuner:
        """Return a tuner that continues the experiment in a directory.

        Trials that had not ended continue from their checkpoints. With `resume_errored` so do failed ones; with
        `restart_errored` they start again. The remaining trials use the trainable given here. Trials that have not
        started draw from `param_space` if it is given. Search algorithm, scheduler, limits and callbacks are those of
        the experiment; its time budget is what remains.
        """
        from outbid.tune._restore import Restored

        folder = _folder(path)
        if not folder.is_dir():
            raise FileNotFoundError(f"restore: there is no directory {folder}")
        if not (folder / STATE).is_file():
            raise FileNotFoundError(f"{folder} is not an experiment's directory: it has no {STATE}")
        run = Run.load(folder)
        if trainable is not None and (given := name_of(trainable)) != run.plan.name:
            raise ValueError(
                f"restore: the experiment in {folder} trains {run.plan.name!r}, got {given!r}: give a trainable of the "
                "same name, whose code may have changed; train another one in a new experiment"
            )
        how = _resume_config or _resume(resume_unfinished, resume_errored, restart_errored)
        restored = Restored(run, trainable, how, param_space)
        return cls(_restored=restored, tune_config=restored.tune, run_config=restored.config)


def _resume(unfinished: bool, errored: bool, restart_errored: bool) -> ResumeConfig:
    """Convert the arguments of `restore`."""
    kind = ResumeConfig.ResumeType
    of_errored = kind.RESTART if restart_errored else kind.RESUME if errored else kind.SKIP
    return ResumeConfig(unfinished=kind.RESUME if unfinished else kind.SKIP, errored=of_errored)


def _folder(path: str | os.PathLike[str]) -> Path:
    text = os.fspath(path)
    return Path(text.removeprefix("file://")).expanduser().absolute()


def _grid(made: Run, tune: TuneConfig) -> ResultGrid:
    metric = tune.metric if isinstance(tune.metric, str) else None
    mode = tune.mode if isinstance(tune.mode, str) else None
    # Metric and mode that only the scheduler or the search algorithm have also count.
    known, way = made.plan.goal
    return ResultGrid(
        ExperimentAnalysis(
            trials=made.trials, default_metric=metric or known, default_mode=mode or way, folder=made.plan.folder
        )
    )
