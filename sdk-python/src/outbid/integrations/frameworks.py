"""Callbacks for the training loops of other libraries. The public module is `outbid.callbacks`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from outbid._core.optional import optional

if TYPE_CHECKING:
    from collections.abc import Callable

    from outbid._training.trial import Trial

__all__ = ["keras", "lightgbm", "lightning", "load_keras", "load_torch", "transformers", "xgboost"]

LIGHTNING = ("lightning.pytorch.callbacks", "pytorch_lightning.callbacks")
"""The modules of Lightning's callbacks, under the package's present name and its old one."""


def xgboost(trial: Trial, *, metric: Mapping[str, str] | None = None, save: bool = True) -> Any:
    """Return a callback for XGBoost's `train` and its estimators: a step is a boosting round.

    A value on a data set is reported as "<data>-<metric>"; that of the last data set also as "<metric>". `metric` maps
    additional names to these, such as {"loss": "valid-logloss"}. With `save` the booster is saved whenever a checkpoint
    is needed; `xgb_model=trial.checkpoint()` continues from it.
    """
    base: Any = optional("callbacks.xgboost", "xgboost.callback").TrainingCallback

    class Callback(base):  # type: ignore[misc]
        def after_iteration(self, model: Any, epoch: int, evals_log: Any) -> bool:
            values: dict[str, float] = {}
            for data, name, value in xgboost_values(evals_log):
                values[f"{data}-{name}"] = values[name] = float(value)
            done = model.num_boosted_rounds()
            _step(trial, values, metric, done, model if save and not hasattr(model, "cvfolds") else None)
            return False

    return Callback()


def xgboost_values(evals_log: Mapping[str, Mapping[str, Sequence[Any]]]) -> Iterator[tuple[str, str, Any]]:
    """Yield the data set, the metric and the value of each of XGBoost's last evaluations; for xgboost.cv, the mean."""
    for data, measured in evals_log.items():
        for name, history in measured.items():
            yield data, name, history[-1][0] if isinstance(history[-1], tuple) else history[-1]


def lightgbm(trial: Trial, *, metric: Mapping[str, str] | None = None, save: bool = True) -> Callable[[Any], None]:
    """Return a callback for LightGBM's `train` and its estimators: a step is a boosting round.

    Names are like in `xgboost`. `init_model=trial.checkpoint()` continues from the saved model.
    """

    def callback(env: Any) -> None:
        values: dict[str, float] = {}
        for data, name, value, *_ in env.evaluation_result_list or ():
            values[f"{data}-{name}"] = values[name] = float(value)
        model = env.model if save and not hasattr(env.model, "boosters") else None
        _step(trial, values, metric, env.iteration + 1, model)

    callback.order = 35  # type: ignore[attr-defined]
    return callback


def keras(trial: Trial, *, metric: Mapping[str, str] | None = None, save: bool = True) -> Any:
    """Return a callback for Keras' `fit`: a step is an epoch.

    After a pause, `model.fit(..., initial_epoch=trial.start_step)` continues counting; call
    `ob.callbacks.load_keras(trial, model)` before it to restore the saved weights.
    """
    base: Any = optional("callbacks.keras", "keras.callbacks").Callback

    class Callback(base):  # type: ignore[misc]
        def on_epoch_end(self, epoch: int, logs: Mapping[str, Any] | None = None) -> None:
            values = {name: float(value) for name, value in (logs or {}).items()}
            weights = {f"w{i}": w for i, w in enumerate(self.model.get_weights())} if save else None
            _step(trial, values, metric, epoch + 1, weights)

    return Callback()


def load_keras(trial: Trial, model: Any) -> None:
    """Restore the weights that `keras` saved; does nothing for a fresh start."""
    saved = trial.checkpoint()
    if saved is not None:
        model.set_weights([saved[f"w{i}"] for i in range(len(saved))])


def load_torch(trial: Trial, module: Any) -> None:
    """Restore a torch module's saved state; does nothing for a fresh start.

    Raises RuntimeError if the names or shapes differ from those of the module, like `load_state_dict`.
    """
    if trial.checkpoint_path is not None:
        from safetensors.torch import load_file

        module.load_state_dict(load_file(trial.checkpoint_path))


def lightning(trial: Trial, *, metric: Mapping[str, str] | None = None, save: bool = True) -> Any:
    """Return a callback for Lightning's Trainer: a step is an epoch. The values that the module logs are reported.

    The module's `state_dict()` is saved; `ob.callbacks.load_torch(trial, module)` before `fit` continues from it. Then
    `max_epochs` must be the remaining steps: the sweep's steps minus `trial.start_step`.
    """
    base: Any = optional("callbacks.lightning", *LIGHTNING).Callback

    class Callback(base):  # type: ignore[misc]
        def __init__(self) -> None:
            self._done = trial.start_step

        def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
            if trainer.sanity_checking or not (trainer.is_global_zero or trial.world_size > 1):
                return
            self._done += 1
            values = {name: float(value) for name, value in trainer.callback_metrics.items()}
            _step(trial, values, metric, self._done, pl_module if save else None)

    return Callback()


def transformers(trial: Trial, *, metric: Mapping[str, str] | None = None, save: bool = True) -> Any:
    """Return a callback for Transformers' Trainer: a step is an evaluation, whose metrics are reported.

    The model's `state_dict()` is saved; `ob.callbacks.load_torch(trial, model)` before `train` continues from it.
    """
    base: Any = optional("callbacks.transformers", "transformers").TrainerCallback

    class Callback(base):  # type: ignore[misc]
        def __init__(self) -> None:
            self._done = trial.start_step

        def on_evaluate(self, args: Any, state: Any, control: Any, metrics: Any = None, **about: Any) -> None:
            if not (state.is_world_process_zero or trial.world_size > 1):
                return
            self._done += 1
            values = {n: float(v) for n, v in (metrics or {}).items() if isinstance(v, (int, float))}
            _step(trial, values, metric, self._done, about.get("model") if save else None)

    return Callback()


def _step(trial: Trial, values: Mapping[str, float], metric: Mapping[str, str] | None, done: int, model: Any) -> None:
    """Save the model if needed, and report the values after `done` steps."""
    found = dict(values)
    for name, theirs in (metric or {}).items():
        if theirs not in found:
            raise KeyError(
                f"there is no {theirs!r} to report as {name!r}; there are {', '.join(sorted(found)) or 'none'}"
            )
        found[name] = found[theirs]
    if model is not None and trial.save_due:
        trial.save(model)
    elif model is not None:
        trial._unsaved = model
    if found:
        trial.report(found, step=done)
