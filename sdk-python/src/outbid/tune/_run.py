"""`tune.run` and `run_experiments`, the interface before `Tuner`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from outbid.tune._config import (
    CheckpointConfig,
    FailureConfig,
    Placement,
    ResumeConfig,
    RunConfig,
    TuneConfig,
    placement_of,
)
from outbid.tune._driver import run_new
from outbid.tune._errors import BadArgumentError, TuneError, unsupported
from outbid.tune._plan import name_of
from outbid.tune._registry import find_trainable
from outbid.tune._trial import Trial
from outbid.tune.analysis import ExperimentAnalysis

_GONE = frozenset(
    "global_checkpoint_period queue_trials ray_auto_init run_errored_only server_port sync_function sync_on_checkpoint "
    "sync_to_cloud sync_to_driver trial_executor upload_dir with_server".split()
)
"""Arguments of `run` in older versions of Ray. They raise UnsupportedError if they are set."""


def run(
    run_or_experiment: Any,
    *,
    name: str | None = None,
    metric: Any = None,
    mode: Any = None,
    stop: Any = None,
    time_budget_s: Any = None,
    config: dict[str, Any] | None = None,
    resources_per_trial: Any = None,
    num_samples: int = 1,
    storage_path: Any = None,
    storage_filesystem: Any = None,
    search_alg: Any = None,
    scheduler: Any = None,
    checkpoint_config: CheckpointConfig | None = None,
    verbose: Any = None,
    progress_reporter: Any = None,
    log_to_file: Any = False,
    trial_name_creator: Any = None,
    trial_dirname_creator: Any = None,
    sync_config: Any = None,
    export_formats: Any = None,
    max_failures: int = 0,
    fail_fast: bool | str = False,
    restore: str | None = None,
    resume: bool | str | None = None,
    resume_config: Any = None,
    reuse_actors: bool = False,
    raise_on_failed_trial: bool = True,
    callbacks: Any = None,
    max_concurrent_trials: int | None = None,
    keep_checkpoints_num: int | None = None,
    checkpoint_score_attr: str | None = None,
    checkpoint_freq: int = 0,
    checkpoint_at_end: bool = False,
    chdir_to_trial_dir: Any = None,
    local_dir: Any = None,
    loggers: Any = None,
    **more: Any,
) -> ExperimentAnalysis:
    """Run an experiment and return its analysis. Raises TuneError if a trial failed, unless disabled."""
    if unknown := next((name for name in more if name not in _GONE), None):
        raise TypeError(f"run() got an unexpected keyword argument {unknown!r}")
    for other, value in (("restore", restore), ("export_formats", export_formats), *more.items()):
        if value:
            unsupported(f"{other} of tune.run", "use Tuner.restore for experiments, and Checkpoint for saved state")
    given = run_or_experiment
    if isinstance(given, Experiment):
        return given._run(
            search_alg=search_alg,
            scheduler=scheduler,
            metric=metric,
            mode=mode,
            verbose=verbose,
            callbacks=callbacks,
            raise_on_failed_trial=raise_on_failed_trial,
            fail_fast=fail_fast,
            max_concurrent_trials=max_concurrent_trials,
            time_budget_s=time_budget_s,
        )
    run_config = RunConfig(
        name=name,
        storage_path=storage_path or local_dir,
        storage_filesystem=storage_filesystem,
        failure_config=FailureConfig(max_failures=max_failures, fail_fast=fail_fast),
        checkpoint_config=checkpoint_config
        or _checkpoints(keep_checkpoints_num, checkpoint_score_attr, checkpoint_freq, checkpoint_at_end),
        sync_config=sync_config,
        verbose=verbose,
        stop=stop,
        callbacks=callbacks,
        progress_reporter=progress_reporter,
        log_to_file=log_to_file,
    )
    tune_config = TuneConfig(
        metric=metric,
        mode=mode,
        search_alg=search_alg,
        scheduler=scheduler,
        num_samples=num_samples,
        max_concurrent_trials=max_concurrent_trials,
        time_budget_s=time_budget_s,
        reuse_actors=reuse_actors,
        trial_name_creator=trial_name_creator,
        trial_dirname_creator=trial_dirname_creator,
    )
    made = _resumed(name, run_config, resume, resume_config, given, config)
    if made is None:
        placement: Placement | None = placement_of(resources_per_trial) if resources_per_trial else None
        made = run_new(given, config, tune_config, run_config, placement=placement)
    failed = [t for t in made.trials if t.status == Trial.ERROR]
    if failed and raise_on_failed_trial:
        first = failed[0]
        raise TuneError(f"{len(failed)} of {len(made.trials)} trials failed: {failed}; the first: {first.error_msg}")
    known, way = made.plan.goal
    return ExperimentAnalysis(
        trials=made.trials,
        default_metric=metric if isinstance(metric, str) else known,
        default_mode=mode if isinstance(mode, str) else way,
        folder=made.plan.folder,
    )


def _resumed(name: str | None, config: RunConfig, resume: Any, how: Any, trainable: Any, space: Any) -> Any:
    """Continue an experiment if that is requested and it exists; otherwise return None."""
    if not resume and how is None:
        return None
    how = how or resume_config(resume)
    from outbid.tune._config import storage_of
    from outbid.tune._record import STATE, Run
    from outbid.tune._restore import Restored

    folder = storage_of(config.storage_path) / (name or "")
    if not name or not (folder / STATE).is_file():
        if isinstance(resume, str) and resume.upper().startswith("AUTO"):
            return None
        raise ValueError(f"resume: there is no experiment in {folder}; set name= and storage_path= of an existing one")
    return Restored(Run.load(folder), trainable, how, space).run()


_TYPE = ResumeConfig.ResumeType
_RESUME = {
    "ERRORED": ResumeConfig(errored=_TYPE.RESUME),
    "RESTART_ERRORED": ResumeConfig(errored=_TYPE.RESTART),
    "ERRORED_ONLY": ResumeConfig(unfinished=_TYPE.SKIP, errored=_TYPE.RESUME),
    "RESTART_ERRORED_ONLY": ResumeConfig(unfinished=_TYPE.SKIP, errored=_TYPE.RESTART),
}
"""Words of `resume`."""


def resume_config(resume: bool | str) -> ResumeConfig:
    """Parse a word such as "AUTO+ERRORED"; `True` resumes unfinished trials."""
    first, *others = str(resume).upper().split("+")
    if first not in ("TRUE", "AUTO", "LOCAL", "REMOTE", "PROMPT", *_RESUME) or any(o not in _RESUME for o in others):
        raise ValueError(
            f"resume must be True, 'AUTO', or words such as 'AUTO+ERRORED' ({', '.join(_RESUME)}), got {resume!r}"
        )
    words = [word for word in (first, *others) if word in _RESUME]
    return _RESUME[words[-1]] if words else ResumeConfig()


def _checkpoints(keep: int | None, score: str | None, every: int, at_end: bool) -> CheckpointConfig:
    order = "min" if score and score.startswith("min-") else "max"
    return CheckpointConfig(
        num_to_keep=keep,
        checkpoint_score_attribute=score.removeprefix("min-") if score else None,
        checkpoint_score_order=order,
        checkpoint_frequency=every,
        checkpoint_at_end=at_end,
    )


class Experiment:
    """An experiment with its settings, for `tune.run` and `run_experiments`."""

    def __init__(
        self,
        name: str,
        run: Any,
        *,
        stop: Any = None,
        time_budget_s: Any = None,
        config: dict[str, Any] | None = None,
        resources_per_trial: Any = None,
        num_samples: int = 1,
        storage_path: Any = None,
        local_dir: Any = None,
        checkpoint_config: CheckpointConfig | None = None,
        max_failures: int = 0,
        trial_name_creator: Any = None,
        trial_dirname_creator: Any = None,
        log_to_file: Any = False,
        **more: Any,
    ) -> None:
        unknown = {"storage_filesystem", "sync_config", "export_formats", "restore", "placeholder_resolvers"}
        for other, value in more.items():
            if other not in unknown:
                raise TypeError(f"Experiment has no argument {other!r}")
            if value and other not in {"storage_filesystem", "sync_config"}:
                unsupported(f"{other} of Experiment", "leave it out")
        self.name = name
        try:
            find_trainable(run)  # raises for an invalid trainable
        except TypeError as error:
            raise BadArgumentError(f"Experiment: run: {error}") from None
        self._what = run
        self._settings: dict[str, Any] = {
            "stop": stop,
            "time_budget_s": time_budget_s,
            "config": config,
            "resources_per_trial": resources_per_trial,
            "num_samples": num_samples,
            "storage_path": storage_path or local_dir,
            "checkpoint_config": checkpoint_config,
            "max_failures": max_failures,
            "trial_name_creator": trial_name_creator,
            "trial_dirname_creator": trial_dirname_creator,
            "log_to_file": log_to_file,
        }

    @property
    def run_identifier(self) -> str:
        """The trainable's name."""
        return name_of(self._what)

    @property
    def public_spec(self) -> dict[str, Any]:
        """The settings that are shown."""
        return {k: v for k, v in self._settings.items() if k in ("stop", "num_samples", "config")}

    @classmethod
    def from_json(cls, name: str, spec: Mapping[str, Any]) -> Experiment:
        """Return an experiment from a dict."""
        settings = dict(spec)
        if "run" not in settings:
            raise TuneError(f"the experiment {name!r} has no 'run'")
        try:
            return cls(name, settings.pop("run"), **settings)
        except TypeError as error:
            raise BadArgumentError(f"the experiment {name!r} has an invalid dict: {error}") from None

    def _run(self, **more: Any) -> ExperimentAnalysis:
        settings = {**self._settings, **{k: v for k, v in more.items() if v is not None}}
        return run(self._what, name=self.name, **settings)


def run_experiments(
    experiments: Any,
    scheduler: Any = None,
    verbose: Any = None,
    progress_reporter: Any = None,
    resume: Any = None,
    reuse_actors: bool = False,
    raise_on_failed_trial: bool = True,
    concurrent: bool = True,
    callbacks: Any = None,
    **more: Any,
) -> list[Trial]:
    """Run experiments one after another, and return their trials."""
    if unknown := more.keys() - {"resume_config", "server_port", "queue_trials"}:
        raise TypeError(f"run_experiments() got an unexpected keyword argument {sorted(unknown)[0]!r}")
    if isinstance(experiments, Mapping):
        made = [e if isinstance(e, Experiment) else Experiment.from_json(n, e) for n, e in experiments.items()]
    else:
        made = list(experiments) if isinstance(experiments, (list, tuple)) else [experiments]
    if wrong := [one for one in made if not isinstance(one, Experiment)]:
        raise BadArgumentError(f"run_experiments: expected Experiments, or a dict of them, got {wrong[0]!r:.80}")
    trials: list[Trial] = []
    for experiment in made:
        trials += experiment._run(
            scheduler=scheduler, verbose=verbose, callbacks=callbacks, raise_on_failed_trial=raise_on_failed_trial
        ).trials
    return trials
