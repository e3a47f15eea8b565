"""Trainable, a class with `setup` and `step`; and functions that bind parameters and resources."""

from __future__ import annotations

import contextlib
import copy
import functools
import inspect
import os
import pickle
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from outbid.tune import _session
from outbid.tune._checkpoint import Checkpoint
from outbid.tune._config import Placement, ScalingConfig, placement_of
from outbid.tune._errors import unsupported
from outbid.tune._host import now_and_here

_DICT = "_dict_checkpoint.pkl"
_COUNTS = ".tune_metadata"


class Trainable:
    """Base class of trainables: override `setup`, `step`, `save_checkpoint` and `load_checkpoint`."""

    def __init__(self, config: dict[str, Any] | None = None, logger_creator: Any = None, storage: Any = None) -> None:
        self.config = dict(config or {})
        session = _session.current
        self._iteration = session.iteration if session else 0
        self._time_total = session.time_total if session else 0.0
        self._restored = self._iteration, self._time_total  # the state when it was made or restored
        self._own_logdir = ""
        self._stopped = False
        self.setup(copy.deepcopy(self.config))

    # Methods to override.

    def setup(self, config: dict[str, Any]) -> None:
        """Initialise; called once with the configuration."""

    def step(self) -> dict[str, Any]:
        """Run one iteration and return its metrics."""
        raise NotImplementedError("a Trainable needs step()")

    def save_checkpoint(self, checkpoint_dir: str) -> Any:
        """Save into a directory, or return a dict."""
        raise NotImplementedError("this Trainable has no save_checkpoint()")

    def load_checkpoint(self, checkpoint: Any) -> None:
        """Load the dict or the directory of `save_checkpoint`."""
        raise NotImplementedError("this Trainable has no load_checkpoint()")

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        """Change the configuration. Returns False if that is not supported; then a new trainable is made."""
        return False

    def cleanup(self) -> None:
        """Clean up; called once."""

    def log_result(self, result: dict[str, Any]) -> None:
        """Log a result."""

    @classmethod
    def default_resource_request(cls, config: dict[str, Any]) -> Any:
        """Return the resources of a trial; None for one CPU."""
        return None

    @classmethod
    def resource_help(cls, config: dict[str, Any]) -> str:
        """Return a description of the resources."""
        return ""

    # Methods to call.

    def train(self) -> dict[str, Any]:
        """Run one iteration and complete its result."""
        began = time.time()
        result = self.step()
        if not isinstance(result, Mapping):
            raise TypeError(f"step() must return a dict, got {type(result).__name__}")
        result = dict(result)
        self._iteration += 1
        result.setdefault("time_this_iter_s", time.time() - began)
        self._time_total += result["time_this_iter_s"]
        result.setdefault("training_iteration", self._iteration)
        result.setdefault("done", False)
        result.setdefault("time_total_s", self._time_total)
        result.setdefault("config", self.config)
        if _session.current is None:
            result = {**now_and_here(), "trial_id": self.trial_id, **result}
            result |= {"iterations_since_restore": self._iteration - self._restored[0]}
            result |= {"time_since_restore": self._time_total - self._restored[1]}
        self.log_result(result)
        return result

    def save(self, checkpoint_dir: str | None = None) -> Checkpoint:
        """Save into a directory, by default a new one."""
        folder = checkpoint_dir or tempfile.mkdtemp(prefix="checkpoint_")
        os.makedirs(folder, exist_ok=True)
        saved = self.save_checkpoint(folder)
        if isinstance(saved, dict):
            import cloudpickle

            Path(folder, _DICT).write_bytes(cloudpickle.dumps(saved))
        elif isinstance(saved, (str, os.PathLike)) and not Path(saved).resolve().is_relative_to(Path(folder).resolve()):
            raise ValueError(f"save_checkpoint() must save into {folder}, but returned {saved!r}")
        counts = {"iteration": self._iteration, "time_total": self._time_total}
        Path(folder, _COUNTS).write_bytes(pickle.dumps(counts))
        return Checkpoint(folder)

    def restore(self, checkpoint_path: str | Checkpoint) -> None:
        """Load a checkpoint of `save`."""
        folder = checkpoint_path if isinstance(checkpoint_path, str) else checkpoint_path.path
        counts = Path(folder, _COUNTS)
        if counts.is_file():
            found = pickle.loads(counts.read_bytes())
            self._restored = self._iteration, self._time_total = found["iteration"], found["time_total"]
        as_dict = Path(folder, _DICT)
        if as_dict.is_file():
            import cloudpickle

            self.load_checkpoint(cloudpickle.loads(as_dict.read_bytes()))
        else:
            self.load_checkpoint(folder)

    def stop(self) -> None:
        """Clean up."""
        if not self._stopped:
            self._stopped = True
            self.cleanup()
            if self._own_logdir:
                with contextlib.suppress(OSError):  # a directory with files is kept
                    os.rmdir(self._own_logdir)

    def reset(self, new_config: dict[str, Any], storage: Any = None) -> bool:
        """Change the configuration."""
        done = self.reset_config(new_config)
        if done:
            self.config = new_config
        return done

    def get_config(self) -> dict[str, Any]:
        """Return the configuration."""
        return self.config

    def export_model(self, export_formats: Any, export_dir: str | None = None) -> Any:
        """Raise UnsupportedError, because models are not exported."""
        unsupported("export_model", "save the model in save_checkpoint()")

    @property
    def iteration(self) -> int:
        """The number of completed iterations."""
        return self._iteration

    training_iteration = iteration

    @property
    def logdir(self) -> str:
        """The trial's directory."""
        if _session.current:
            return _session.current.trial.local_path
        self._own_logdir = self._own_logdir or tempfile.mkdtemp(prefix="trainable-")
        return self._own_logdir

    @property
    def trial_id(self) -> str:
        """The trial's id."""
        return _session.current.trial.trial_id if _session.current else "default"

    @property
    def trial_name(self) -> str:
        """The trial's name."""
        return repr(_session.current.trial) if _session.current else "default"

    @property
    def trial_resources(self) -> Placement | None:
        """The trial's resources."""
        return _session.current.placement if _session.current else None


def saves(kind: type) -> bool:
    """Return whether a class can save."""
    return getattr(kind, "save_checkpoint", None) is not Trainable.save_checkpoint


class _Bound:
    """A training function with bound parameters or resources."""

    def __init__(self, inner: Any, parameters: dict[str, Any] | None = None) -> None:
        self._tune_inner = inner
        self._parameters = parameters or {}

    def __call__(self, config: dict[str, Any], **more: Any) -> Any:
        return self._tune_inner(config, **self._parameters, **more)

    @property
    def __signature__(self) -> inspect.Signature:
        own = inspect.signature(self._tune_inner)
        return own.replace(parameters=[p for n, p in own.parameters.items() if n not in self._parameters])


def with_parameters(trainable: Any, **kwargs: Any) -> Any:
    """Bind objects to a trainable, as arguments of a function or of a class's `setup`."""
    if not callable(trainable):
        raise TypeError(f"with_parameters: expected a function or a Trainable, got {trainable!r:.80}")
    if not inspect.isclass(trainable):
        bound: Any = _Bound(trainable, kwargs)
        if hasattr(trainable, "_tune_placement"):
            bound._tune_placement = trainable._tune_placement
        return bound

    def setup(self: Any, config: dict[str, Any]) -> None:
        trainable.setup(self, config, **kwargs)  # type: ignore[attr-defined]

    made = type(trainable.__name__, (trainable,), {"setup": setup, "__module__": trainable.__module__})
    return made


def with_resources(trainable: Any, resources: Any) -> Any:
    """Set the resources of each trial of a trainable: {"cpu": 2, "gpu": 1}, or a PlacementGroupFactory."""
    if isinstance(resources, ScalingConfig):
        unsupported("with_resources of a ScalingConfig", 'give a dict such as {"cpu": 2, "gpu": 1}')
    wanted: Any = resources if callable(resources) and not isinstance(resources, Placement) else placement_of(resources)
    if inspect.isclass(trainable):
        return type(trainable.__name__, (trainable,), {"_tune_placement": wanted, "__module__": trainable.__module__})
    bound: Any = _Bound(trainable)
    bound._tune_placement = wanted
    return bound


def depends(trainable: Any) -> bool:
    """Return whether a trial's resources depend on its configuration."""
    wanted = getattr(trainable, "_tune_placement", None)
    if wanted is not None:
        return callable(wanted) and not isinstance(wanted, Placement)
    if not inspect.isclass(trainable):
        return False
    request: Any = getattr(trainable, "default_resource_request", None)
    return getattr(request, "__func__", None) is not Trainable.default_resource_request.__func__  # type: ignore[attr-defined]


def placement_for(trainable: Any, config: dict[str, Any]) -> Placement:
    """Return the resources of a trial of a trainable."""
    wanted = getattr(trainable, "_tune_placement", None)
    if wanted is None and inspect.isclass(trainable):
        request: Callable[..., Any] | None = getattr(trainable, "default_resource_request", None)
        wanted = request(config) if request else None
    if callable(wanted) and not isinstance(wanted, Placement):
        wanted = wanted(config)
    return placement_of(wanted or {"cpu": 1})


def unwrapped(trainable: Any) -> Any:
    """Return the function or class inside `with_parameters`, `with_resources` and `partial`."""
    while isinstance(trainable, functools.partial) or hasattr(trainable, "_tune_inner"):
        trainable = getattr(trainable, "_tune_inner", None) or trainable.func
    return trainable
