"""Population based bandits, which change configurations with a Gaussian process."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from outbid.tune._errors import BadArgumentError
from outbid.tune._trial import Trial
from outbid.tune.schedulers._population import PopulationBasedTraining, _Member

_Array = npt.NDArray[np.float64]
_KNOWN, _CANDIDATES = 200, 1000  # maximum changes that the process is fitted to, and number of candidate points


class PB2(PopulationBasedTraining):
    """Population based training with new values from a Gaussian process (Parker-Holder et al. 2020).

    `hyperparam_bounds` are [low, high] by name; a dict is a group.
    """

    def __init__(
        self,
        time_attr: str = "time_total_s",
        metric: str | None = None,
        mode: str | None = None,
        perturbation_interval: float = 60.0,
        hyperparam_bounds: dict[str, Any] | None = None,
        quantile_fraction: float = 0.25,
        log_config: bool = True,
        require_attrs: bool = True,
        synch: bool = False,
        custom_explore_fn: Callable[[dict[str, Any]], dict[str, Any]] | None = None,
    ) -> None:
        bounds = hyperparam_bounds or {}
        if not bounds:
            raise BadArgumentError(
                "PB2: hyperparam_bounds must name at least one parameter, such as {'lr': [1e-4, 1e-1]}"
            )
        self._bounds: dict[tuple[str, ...], tuple[float, float]] = dict(_flat(bounds))
        self._rng = np.random.RandomState(0)
        super().__init__(
            time_attr,
            metric,
            mode,
            perturbation_interval,
            hyperparam_mutations=_mutations(bounds, self._rng),
            quantile_fraction=quantile_fraction,
            resample_probability=0,
            custom_explore_fn=custom_explore_fn,
            log_config=log_config,
            require_attrs=require_attrs,
            synch=synch,
        )
        self._rows: list[tuple[float, list[float], float]] = []  # time, configuration, change of the score
        self._last: dict[str, tuple[float, float]] = {}

    def on_trial_result(self, tune_controller: Any, trial: Trial, result: dict[str, Any]) -> Any:
        """Learn the effect of a configuration, then decide like PBT."""
        time, score = result.get(self._time), self._score(result)
        if time is not None and score is not None:
            before = self._last.get(trial.trial_id)
            if before is not None and time > before[0] and math.isfinite(score - before[1]):
                self._rows.append((float(time), self._point(trial.config), score - before[1]))
            self._last[trial.trial_id] = (float(time), score)
        return super().on_trial_result(tune_controller, trial, result)

    def _new_config(self, member: _Member, source: _Member) -> dict[str, Any]:
        if member.trial.trial_id in self._last and source.trial.trial_id in self._last:
            self._last[member.trial.trial_id] = self._last[source.trial.trial_id]
        config = copy.deepcopy(source.trial.config)
        for (path, (low, high)), x in zip(self._bounds.items(), self._choose(source), strict=True):
            *around, last = path
            inside = config
            for key in around:
                inside = inside[key]
            value = low + float(x) * (high - low)
            inside[last] = round(value) if isinstance(inside.get(last), int) else value
        return self._custom(config) if self._custom else config

    def _point(self, config: dict[str, Any]) -> list[float]:
        out = []
        for path, (low, high) in self._bounds.items():
            inside: Any = config
            for key in path:
                inside = inside[key]
            out.append((float(inside) - low) / (high - low))
        return out

    def _choose(self, source: _Member) -> _Array:
        """Return the point with the highest upper confidence bound of the change of the score."""
        grid: _Array = self._rng.uniform(size=(_CANDIDATES, len(self._bounds)))
        rows = self._rows[-_KNOWN:]
        if len(rows) < 3:
            return np.asarray(grid[0])
        times = np.array([row[0] for row in rows])
        span = float(np.ptp(times)) or 1.0
        x = np.column_stack([(times - times.min()) / span, np.array([row[1] for row in rows])])
        y = np.array([row[2] for row in rows])
        y = (y - y.mean()) / (float(y.std()) or 1.0)
        now = np.full((_CANDIDATES, 1), (source.trained - float(times.min())) / span)
        ahead = np.column_stack([now, grid])
        noise = 0.1
        inverse = np.linalg.inv(_kernel(x, x) + noise * np.eye(len(x)))
        cross = _kernel(ahead, x)
        mean = cross @ inverse @ y
        spread = np.sqrt(np.maximum(1 - np.einsum("ij,jk,ik->i", cross, inverse, cross), 1e-9))
        hope = float(np.sqrt(0.2 + np.log(len(rows))))
        return np.asarray(grid[int(np.argmax(mean + hope * spread))])


def _kernel(a: _Array, b: _Array) -> _Array:
    """Return the covariance of points, which decreases with their distance and the time between them."""
    apart = ((a[:, None, 1:] - b[None, :, 1:]) ** 2).sum(-1)
    return np.asarray(np.exp(-apart / (2 * 0.3**2)) * 0.9 ** np.abs(a[:, None, 0] - b[None, :, 0]))


def _flat(bounds: dict[str, Any], at: tuple[str, ...] = ()) -> list[tuple[tuple[str, ...], tuple[float, float]]]:
    out: list[tuple[tuple[str, ...], tuple[float, float]]] = []
    for name, value in bounds.items():
        if isinstance(value, dict):
            out.extend(_flat(value, (*at, name)))
            continue
        if not isinstance(value, (list, tuple)) or len(value) != 2 or not value[0] < value[1]:
            raise ValueError(f"PB2: hyperparam_bounds: {name} must be [low, high], got {value!r}")
        out.append(((*at, name), (float(value[0]), float(value[1]))))
    return out


class _Between:
    """Draws uniformly between two bounds."""

    def __init__(self, low: float, high: float, rng: np.random.RandomState) -> None:
        self._low, self._high, self._rng = low, high, rng

    def __call__(self) -> float:
        return float(self._rng.uniform(self._low, self._high))


def _mutations(bounds: dict[str, Any], rng: np.random.RandomState) -> dict[str, Any]:
    return {
        name: _mutations(value, rng) if isinstance(value, dict) else _Between(value[0], value[1], rng)
        for name, value in bounds.items()
    }
