"""Callbacks for the training loops of other libraries. The public module is `outbid.callbacks`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from outbid._core.errors import MissingExtraError

if TYPE_CHECKING:
    from collections.abc import Callable

    from outbid._training.trial import Trial

__all__ = ["keras", "lightgbm", "lightning", "load_keras", "load_torch", "transformers", "xgboost"]


def xgboost(trial: Trial, *, metric: Mapping[str, str] | None = None, save: bool = True) -> Any:
    """Return a callback for XGBoost's `train` and its estimators: a step is a boosting round.

    A value on a data set is reported as "<data>-<metric>"; that of the last data set also as "<metric>". `metric` maps
    additional names to these, such as {"loss": "valid-logloss"}. With `save` the booster is saved whenever a checkpoint
    is needed; `xgb_model=trial.checkpoint()` continues from it.
    """
    try:
        from xgboost.callback import TrainingCallback
    except ImportError:
        raise MissingExtraError("callbacks.xgboost needs xgboost: pip install xgboost") from None

    class Callback(TrainingCallback):  # type: ignore[misc]
        def after_iteration(self, model: Any, epoch: int, evals_log: Any) -> bool:
            values: dict[str, float] = {}
            for data, measured in evals_log.items():
                for name, history in measured.items():
                    value = history[-1][0] if isinstance(history[-1], tuple) else history[-1]
                    values[f"{data}-{name}"] = values[name] = float(value)
            done = model.num_boosted_rounds()
            _step(trial, values, metric, done, model if save and not hasattr(model, "cvfolds") else None)
            return False

    return Callback()


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
    try:
        from keras.callbacks import Callback as Base  # type: ignore[import-not-found, unused-ignore]
    except ImportError:
        raise MissingExtraError("callbacks.keras needs keras: pip install keras") from None

    class Callback(Base):  # type: ignore[misc]
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

    Raises RuntimeError if the names or shapes are not the module's, like `load_state_dict` does.
    """
    if trial.checkpoint_path is not None:
        from safetensors.torch import load_file

        module.load_state_dict(load_file(trial.checkpoint_path))


def lightning(trial: Trial, *, metric: Mapping[str, str] | None = None, save: bool = True) -> Any:
    """Return a callback for Lightning's Trainer: a step is an epoch. The values that the module logs are reported.

    The module's `state_dict()` is saved; `ob.callbacks.load_torch(trial, module)` before `fit` continues from it. Then
    `max_epochs` must be the remaining steps: the sweep's steps minus `trial.start_step`.
    """
    try:
        from lightning.pytorch.callbacks import Callback as Base  # type: ignore[import-not-found, unused-ignore]
    except ImportError:
        try:
            from pytorch_lightning.callbacks import Callback as Base  # type: ignore[import-not-found, unused-ignore]
        except ImportError:
            raise MissingExtraError("callbacks.lightning needs lightning: pip install lightning") from None

    class Callback(Base):  # type: ignore[misc]
        def __init__(self) -> None:
            self._done = trial.start_step

        def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
            if trainer.sanity_checking or not trainer.is_global_zero:
                return
            self._done += 1
            values = {name: float(value) for name, value in trainer.callback_metrics.items()}
            _step(trial, values, metric, self._done, pl_module if save else None)

    return Callback()


def transformers(trial: Trial, *, metric: Mapping[str, str] | None = None, save: bool = True) -> Any:
    """Return a callback for Transformers' Trainer: a step is an evaluation, whose metrics are reported.

    The model's `state_dict()` is saved; `ob.callbacks.load_torch(trial, model)` before `train` continues from it.
    """
    try:
        from transformers import TrainerCallback as Base  # type: ignore[import-not-found, unused-ignore]
    except ImportError:
        raise MissingExtraError("callbacks.transformers needs transformers: pip install transformers") from None

    class Callback(Base):  # type: ignore[misc]
        def __init__(self) -> None:
            self._done = trial.start_step

        def on_evaluate(self, args: Any, state: Any, control: Any, metrics: Any = None, **about: Any) -> None:
            if not state.is_world_process_zero:
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
