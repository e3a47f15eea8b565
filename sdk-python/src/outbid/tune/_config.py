"""Ray's configuration classes: storage, stopping, checkpoints and retries of a run."""

from __future__ import annotations

import datetime
import enum
import numbers
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from outbid.tune._errors import unsupported


@dataclass
class FailureConfig:
    """How often a failed trial is restarted from its checkpoint, and whether a failure ends the run."""

    max_failures: int = 0
    fail_fast: bool | str = False

    def __post_init__(self) -> None:
        if self.fail_fast not in (True, False, "raise"):
            raise ValueError(f"FailureConfig: fail_fast must be True, False or 'raise', got {self.fail_fast!r}")
        if self.fail_fast and self.max_failures != 0:
            raise ValueError("FailureConfig: max_failures must be 0 if fail_fast is set")


@dataclass
class CheckpointConfig:
    """Which checkpoints a trial's directory keeps, and when a class is asked for one."""

    num_to_keep: int | None = None
    checkpoint_score_attribute: str | None = None
    checkpoint_score_order: str = "max"
    checkpoint_frequency: int = 0
    checkpoint_at_end: bool | None = None

    def __post_init__(self) -> None:
        if self.num_to_keep is not None and self.num_to_keep <= 0:
            raise ValueError(f"CheckpointConfig: num_to_keep must be above 0, got {self.num_to_keep!r}")
        if self.checkpoint_score_order not in ("max", "min"):
            raise ValueError(
                f"CheckpointConfig: checkpoint_score_order must be 'max' or 'min', got {self.checkpoint_score_order!r}"
            )


@dataclass
class SyncConfig:
    """Ignored: checkpoints are in the server's store, and files in `storage_path`."""

    sync_period: int = 300
    sync_timeout: int = 1800
    sync_artifacts: bool = False
    sync_artifacts_on_checkpoint: bool = True
    upload_dir: str | None = None
    syncer: Any = "auto"


@dataclass
class RunConfig:
    """The name of a run, the location of its files, and when it ends."""

    name: str | None = None
    storage_path: str | os.PathLike[str] | None = None
    storage_filesystem: Any = None
    failure_config: FailureConfig | None = None
    checkpoint_config: CheckpointConfig | None = None
    sync_config: SyncConfig | None = None
    verbose: int | None = None
    stop: Mapping[str, Any] | Callable[..., Any] | None = None
    callbacks: Sequence[Any] | None = None
    progress_reporter: Any = None
    log_to_file: bool | str | tuple[str, str] = False
    local_dir: str | os.PathLike[str] | None = None

    def __post_init__(self) -> None:
        if self.storage_filesystem is not None:
            unsupported("storage_filesystem", "name a directory that the workers share as storage_path")
        if self.storage_path is None and self.local_dir is not None:
            self.storage_path = self.local_dir
        self.failure_config = self.failure_config or FailureConfig()
        self.checkpoint_config = self.checkpoint_config or CheckpointConfig()


@dataclass
class ResumeConfig:
    """The treatment of finished, unfinished and failed trials when an experiment continues."""

    class ResumeType(enum.Enum):
        """Continue from the checkpoint, start again, or leave the trial as it is."""

        RESUME = "resume"
        RESTART = "restart"
        SKIP = "skip"

    finished: ResumeType | str = ResumeType.SKIP
    unfinished: ResumeType | str = ResumeType.RESUME
    errored: ResumeType | str = ResumeType.SKIP

    def __post_init__(self) -> None:
        for name in ("finished", "unfinished", "errored"):
            given = getattr(self, name)
            setattr(self, name, self.ResumeType(given.lower() if isinstance(given, str) else given))
        if self.finished is not self.ResumeType.SKIP:
            unsupported("finished= of ResumeConfig except SKIP", "run ended trials again as a new experiment")
        if self.unfinished is self.ResumeType.RESTART:
            unsupported("unfinished=RESTART of ResumeConfig", "resume them from checkpoints, or start a new experiment")


@dataclass
class TuneConfig:
    """The objective, the search algorithm, the scheduler and the number of trials."""

    mode: Any = None
    metric: Any = None
    search_alg: Any = None
    scheduler: Any = None
    num_samples: int = 1
    max_concurrent_trials: int | None = None
    time_budget_s: float | datetime.timedelta | None = None
    reuse_actors: bool = False
    trial_name_creator: Callable[[Any], str] | None = None
    trial_dirname_creator: Callable[[Any], str] | None = None
    chdir_to_trial_dir: bool | None = None

    def __post_init__(self) -> None:
        if self.mode is not None and not isinstance(self.mode, (list, tuple)) and self.mode not in ("min", "max"):
            raise ValueError(f"TuneConfig: mode must be 'min' or 'max', got {self.mode!r}")
        given: Any = self.num_samples
        if not isinstance(given, (float, numbers.Integral)) or not float(given).is_integer():
            raise ValueError(f"TuneConfig: num_samples must be a whole number, got {self.num_samples!r}")
        self.num_samples = int(given)  # also accepts 1e3
        if self.num_samples != -1 and self.num_samples < 1:
            raise ValueError(f"TuneConfig: num_samples must be at least 1, or -1 (no limit), got {self.num_samples!r}")


@dataclass
class ScalingConfig:
    """Configuration of Ray Train's trainers, which Outbid does not have."""

    trainer_resources: Any = None
    num_workers: int = 1
    use_gpu: bool = False
    resources_per_worker: Any = None
    placement_strategy: str = "PACK"
    accelerator_type: str | None = None


@dataclass
class Placement:
    """The resources of a trial in bundles. Outbid gives all bundles to one trial."""

    bundles: list[dict[str, float]]
    strategy: str = "PACK"
    options: dict[str, Any] = field(default_factory=dict)

    def __init__(self, bundles: Sequence[Mapping[str, float]], strategy: str = "PACK", *_: Any, **options: Any) -> None:
        if not bundles:
            raise ValueError("PlacementGroupFactory: bundles must not be empty")
        self.bundles = [{k: float(v) for k, v in bundle.items() if v} for bundle in bundles]
        self.strategy, self.options = strategy, options

    def __call__(self) -> Placement:
        """Return itself, because nothing needs to be created."""
        return self

    @property
    def required_resources(self) -> dict[str, float]:
        """The sum of all bundles."""
        total: dict[str, float] = {}
        for bundle in self.bundles:
            for name, n in bundle.items():
                total[name] = total.get(name, 0) + n
        return total

    @property
    def head_cpus(self) -> float:
        """The CPUs of the first bundle."""
        return self.bundles[0].get("CPU", 0.0)

    @property
    def head_bundle_is_empty(self) -> bool:
        """Whether the first bundle is empty."""
        return not self.bundles[0]

    @property
    def num_workers(self) -> int:
        """The number of bundles after the first."""
        return len(self.bundles) - 1


def placement_of(resources: Any) -> Placement:
    """Return resources given as a dict, such as {"cpu": 2, "gpu": 1}."""
    if isinstance(resources, Placement):
        return resources
    if isinstance(resources, ScalingConfig):
        unsupported("ScalingConfig as resources", 'give a dict such as {"cpu": 2, "gpu": 1}')
    names = {"cpu": "CPU", "gpu": "GPU"}
    bundle: dict[str, float] = {}
    for name, n in dict(resources or {}).items():
        if name in ("memory", "object_store_memory", "node_ip_address"):
            continue
        # Old scripts use extra_cpu, and a nested dict for custom resources.
        added = n if isinstance(n, Mapping) else {names.get(str(name).removeprefix("extra_"), str(name)): n}
        for own, number in added.items():
            bundle[str(own)] = bundle.get(str(own), 0.0) + float(number or 0)
    return Placement([bundle or {"CPU": 1}])


def storage_of(path: str | os.PathLike[str] | None) -> Path:
    """Return the directory that contains experiments."""
    if path is None:
        path = os.environ.get("RAY_AIR_LOCAL_CACHE_DIR") or os.environ.get("TUNE_RESULT_DIR") or "~/ray_results"
    text = os.fspath(path)
    if text.startswith("file://"):
        text = text[len("file://") :]
    if "://" in text:
        unsupported(
            f"storage in {text.split('://')[0]}://",
            "give a directory, one that the workers share, as storage_path; checkpoints are in the server's store",
        )
    return Path(text).expanduser().absolute()


def seconds(span: float | datetime.timedelta | None) -> float | None:
    """Return a duration in seconds."""
    return span.total_seconds() if isinstance(span, datetime.timedelta) else span
