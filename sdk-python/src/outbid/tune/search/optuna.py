"""OptunaSearch: Optuna's samplers as a search algorithm. Needs the extra outbid[optuna]."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from typing import Any

from outbid._core.errors import MissingExtraError
from outbid.tune._sample import Categorical, Domain, Float, Integer
from outbid.tune._trial import flatten
from outbid.tune._variants import find, is_nest, look_up, unresolved
from outbid.tune.search._searcher import Searcher

DEFAULT_METRIC = "_metric"


class OptunaSearch(Searcher):
    """Draws configurations with an Optuna sampler, by default TPE.

    `space` is a dict of Optuna's distributions, or a define-by-run function of a trial; the default is the experiment's
    `param_space`. Lists of metrics and modes are several objectives.
    """

    def __init__(
        self,
        space: Any = None,
        metric: Any = None,
        mode: Any = None,
        points_to_evaluate: list[dict[str, Any]] | None = None,
        sampler: Any = None,
        study_name: str | None = None,
        storage: Any = None,
        seed: int | None = None,
        evaluated_rewards: list[Any] | None = None,
    ) -> None:
        try:
            import optuna  # noqa: F401
        except ImportError:
            raise MissingExtraError("OptunaSearch needs Optuna: pip install 'outbid[optuna]'") from None
        super().__init__(metric, mode)
        if isinstance(space, Mapping) and find(dict(space)):
            space = convert(dict(space))
        if evaluated_rewards is not None and len(evaluated_rewards) != len(points_to_evaluate or []):
            raise ValueError("OptunaSearch: evaluated_rewards must have as many entries as points_to_evaluate")
        self._space, self._sampler, self._seed = space, sampler, seed
        self._points, self._rewards = list(points_to_evaluate or []), evaluated_rewards
        self._study_name, self._storage = study_name or "optuna", storage
        self._study: Any = None
        self._asked: dict[str, Any] = {}
        self._told: set[str] = set()

    def set_search_properties(self, metric: Any, mode: Any, config: dict[str, Any], **spec: Any) -> bool:
        """Set metric, mode and space from the experiment."""
        self._metric = self._metric or metric
        self._mode = self._mode or mode
        if not self._space:
            self._space = convert(config)
        elif find(config) and (callable(self._space) or convert(config) != self._space):
            raise ValueError("OptunaSearch: give the search space to it or as param_space, not both")
        if not self._mode:
            raise ValueError("OptunaSearch: mode must be given, here or in TuneConfig")
        self._metric = self._metric or DEFAULT_METRIC
        return True

    def suggest(self, trial_id: str) -> dict[str, Any]:
        """Return a flat configuration, with paths with slashes."""
        study = self._made()
        if callable(self._space):
            trial = study.ask()
            recorder = _Recorder(trial)
            constants = self._space(recorder)
            self._asked[trial_id] = trial
            if constants is not None and not isinstance(constants, Mapping):
                raise TypeError(f"the define-by-run function must return a dict or None, got {constants!r:.80}")
            return {**recorder.values, **(constants or {})}
        trial = study.ask(fixed_distributions=self._space)
        self._asked[trial_id] = trial
        return dict(trial.params)

    def on_trial_result(self, trial_id: str, result: dict[str, Any]) -> None:
        """Report an intermediate result to Optuna."""
        if isinstance(self._metric, (list, tuple)) or trial_id in self._told or trial_id not in self._asked:
            return
        value, step = result.get(self._metric), result.get("training_iteration")
        if value is not None and step is not None:
            self._asked[trial_id].report(float(value), int(step))

    def on_trial_complete(self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False) -> None:
        """Tell Optuna a trial's final result."""
        from optuna.trial import TrialState

        if trial_id in self._told or trial_id not in self._asked:
            return
        self._told.add(trial_id)
        several = isinstance(self._metric, (list, tuple))
        found = [(result or {}).get(m) for m in (self._metric if several else [self._metric])]
        state = TrialState.COMPLETE
        if any(value is None for value in found):
            state = TrialState.FAIL if error else TrialState.PRUNED
        values = None if state != TrialState.COMPLETE else [float(v) for v in found if v is not None]
        try:
            self._study.tell(self._asked[trial_id], values, state=state)
        except ValueError:  # NaN
            self._study.tell(self._asked[trial_id], state=TrialState.FAIL)

    def add_evaluated_point(self, parameters: dict[str, Any], value: float, error: bool = False, **_: Any) -> None:
        """Add a point whose value is known."""
        import optuna

        if callable(self._space):
            raise TypeError("OptunaSearch: evaluated points need a space of distributions, not a function")
        state = optuna.trial.TrialState.FAIL if error else optuna.trial.TrialState.COMPLETE
        self._made().add_trial(
            optuna.trial.create_trial(
                state=state, value=None if error else value, params=self._flat(parameters), distributions=self._space
            )
        )

    def _flat(self, point: dict[str, Any]) -> dict[str, Any]:
        """Return a point by parameter name; parameters inside lists and tuples are looked up there."""
        flat = flatten(point)
        for name in () if callable(self._space) else self._space:
            if name not in flat:
                with contextlib.suppress(LookupError, TypeError, ValueError):
                    keys = [int(key) if key.isdigit() else key for key in name.split("/")]
                    flat[name] = look_up(point, tuple(keys))
        return {name: value for name, value in flat.items() if callable(self._space) or name in self._space}

    @property
    def _ot_study(self) -> Any:
        """Optuna's study, under the name of Ray's class, which scripts use."""
        return self._study

    def _made(self) -> Any:
        if self._study is not None:
            return self._study
        import optuna

        optuna.logging.set_verbosity(optuna.logging.WARNING)
        modes = self._mode if isinstance(self._mode, (list, tuple)) else [self._mode]
        self._study = optuna.create_study(
            storage=self._storage,
            sampler=self._sampler or optuna.samplers.TPESampler(seed=self._seed),
            pruner=optuna.pruners.NopPruner(),
            study_name=self._study_name,
            directions=["minimize" if mode == "min" else "maximize" for mode in modes],
            load_if_exists=True,
        )
        points, self._points = self._points, []
        for i, point in enumerate(points):
            if self._rewards is not None:
                self.add_evaluated_point(point, self._rewards[i])
            else:
                self._study.enqueue_trial(self._flat(point))
        return self._study


class _Recorder:
    """Wraps Optuna's trial and records its suggestions."""

    def __init__(self, trial: Any) -> None:
        self._trial = trial
        self.values: dict[str, Any] = {}

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._trial, name)
        if not name.startswith("suggest_"):
            return found

        def suggest(key: str, *args: Any, **kwargs: Any) -> Any:
            self.values[key] = found(key, *args, **kwargs)
            return self.values[key]

        call: Callable[..., Any] = suggest
        return call


def convert(space: dict[str, Any]) -> dict[str, Any]:
    """Return the parameters of a space as Optuna's distributions, by paths with slashes."""
    return {"/".join(map(str, path)): _distribution("/".join(map(str, path)), domain) for path, domain in find(space)}


def _distribution(path: str, domain: Domain) -> Any:
    from optuna import distributions as d

    if isinstance(domain, Categorical) and any(unresolved(c) or (is_nest(c) and find(c)) for c in domain.categories):
        raise ValueError(
            f"OptunaSearch cannot draw {path}: its choices contain parameters; give a define-by-run function "
            "as space, or leave the search algorithm out"
        )
    if isinstance(domain, Categorical) and not domain.is_grid():
        return d.CategoricalDistribution(domain.categories)
    if isinstance(domain, Float) and domain.normal is None:
        step = domain.q if domain.q and not domain.log else None
        return d.FloatDistribution(domain.lower, domain.upper, log=domain.log, step=step)
    if isinstance(domain, Integer):
        high = int(domain.upper) if domain.q else int(domain.upper) - 1
        return d.IntDistribution(int(domain.lower), high, log=domain.log, step=1 if domain.log else int(domain.q or 1))
    raise ValueError(f"OptunaSearch cannot draw {path}: {domain!r}; leave out search_alg for such parameters")


__all__ = ["OptunaSearch", "convert"]
