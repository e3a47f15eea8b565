"""Result: the trials of a sweep, its best trial, tables and plots."""

from __future__ import annotations

import html
from typing import TYPE_CHECKING, Any, Literal

from outbid._client.connection import Connection
from outbid._core.errors import MissingExtraError, NoResultError
from outbid._display.plots import Plots
from outbid._results import model
from outbid._search.objectives import front
from outbid.v1 import sweep_pb2

if TYPE_CHECKING:
    import pandas as pd

    from outbid._results.soup import Evaluate, Soup


class Result:
    """The result of a sweep at the time this object was made: its trials, the best one, tables and plots."""

    def __init__(self, client: Connection, sweep: model.SweepInfo, trials: list[model.TrialResult]) -> None:
        self._client = client
        self._spec: sweep_pb2.SweepSpec | None = None
        self._reports: list[model.Report] | None = None
        self.sweep = sweep
        """The sweep: state, counts, steps, device-seconds, notes."""
        self.trials = trials
        """Every trial, by number."""

    def __repr__(self) -> str:
        best = self.sweep.best
        value = f", best {self.sweep.metric} {best.metric:.6g}" if best and best.metric is not None else ""
        return f"<outbid.Result of {self.sweep.id}: {self.sweep.state}, {len(self.trials)} trials{value}>"

    def _repr_html_(self) -> str:
        from outbid._display.display import drawn_here, html_of

        # such as `sweep.run()` on a cell's last line: a second table would repeat the first
        if drawn_here(self.sweep.id):
            return f"<code>{html.escape(repr(self))}</code>"
        return html_of(self.sweep, self.trials)

    @property
    def best(self) -> model.TrialResult:
        """The trial with the best value of the sweep's metric; NaN and infinities are never the best.

        With several objectives the first one decides; `front()` returns the best trials by all of them.

        Raises NoResultError if no trial has reported the metric, with the reason if the server knows it.
        """
        best = self.sweep.best
        if best is None:
            raise NoResultError(f"no trial of {self.sweep.id} has reported {self.sweep.metric!r}{self._why()}")
        return next((t for t in self.trials if t.number == best.number), best)

    def front(self) -> list[model.TrialResult]:
        """Return the Pareto front: the trials that no other trial dominates, by each trial's last report.

        A trial dominates another if it is as good in every objective and better in one. The front is sorted by the
        first objective, the best first. Trials that failed or lack an objective are left out. With one objective the
        front is the best trials.
        """
        return front(self.trials, self.sweep.objectives or ((self.sweep.metric, self.sweep.mode),))

    @property
    def plot(self) -> Plots:
        """Plots of the result; needs the extra outbid[plots]."""
        return Plots(self)

    def records(self) -> list[dict[str, Any]]:
        """Return one flat dict per trial: number, state, configuration, metrics, costs."""
        return [trial.record() for trial in self.trials]

    def reports(self) -> list[model.Report]:
        """Return all reports, oldest first. They are fetched from the server once."""
        if self._reports is None:
            self._reports = self._client.reports(self.sweep.id)
        return self._reports

    def frame(self, *, reports: bool = False) -> pd.DataFrame:
        """Return a pandas DataFrame with one row per trial, or per report with `reports=True`.

        Needs the extra outbid[frame]; `records()` does not.
        """
        try:
            import pandas as pd
        except ImportError:
            raise MissingExtraError(
                "Result.frame() needs pandas: pip install 'outbid[frame]'; Result.records() does not need it"
            ) from None
        if not reports:
            return pd.DataFrame.from_records(self.records(), columns=self._columns())
        return pd.DataFrame.from_records([r.record() for r in self.reports()])

    def soup(self, k: int | None = None, *, evaluate: Evaluate | None = None, keep: bool = True) -> Soup:
        """Average the weights of the best trials into a greedy soup (Wortsman et al., ICML 2022), or fetch one.

        Without `k` and `evaluate` it returns the newest soup that the sweep keeps, including those made by `outbid
        soup`, and raises NotFoundError if it keeps none.

        The soup starts with the best trial's weights. Each of the next k - 1 trials is added if the mean is then no
        worse by `evaluate`. That function gets weights by name and returns the sweep's metric; let it use data that no
        trial reported on. Without it all k trials are averaged. The default of k is 10. A soup helps if all trials
        started with the same weights; see docs/guides/averaging.md.

        Only trials that have a checkpoint count; `checkpoints=ob.Checkpoints(best=...)` says how many the sweep keeps.
        The `outbid` binary on this machine computes the averages, like for `outbid soup`.

        Unless `keep` is False, the sweep stores the soup with its checkpoints. It keeps as many of the newest soups as
        checkpoints, but at least one, and `sweep.soups` lists them. They are deleted with the sweep.
        """
        from outbid._results import soup

        if k is None and evaluate is None:
            return soup.kept(self._client, self.sweep.id)
        return soup.greedy(
            self.sweep.id,
            self.sweep.mode,
            self.trials,
            10 if k is None else k,
            evaluate,
            self._client if keep else None,
        )

    def importance(
        self, *, seed: int = 0, method: Literal["permutation", "fanova"] = "permutation"
    ) -> dict[str, float]:
        """Return how much each parameter matters for the metric, largest first. The shares add up to 1.

        Method "fanova" is Optuna's (Hutter et al. 2014), over the trials that trained to their end and the parameters
        that all of them have. It needs outbid[optuna].

        Permutation importance fits an ensemble of extremely randomised regression trees to (configuration, best
        metric). A parameter's importance is the growth of the ensemble's squared error when that parameter's values are
        shuffled among the trials. It needs about 20 trials to be meaningful, and describes the region that was tried,
        not the whole space. It is empty if fewer than 4 trials have reported.
        """
        if method == "fanova":
            from outbid.integrations.optuna.sweep_study import fanova

            return fanova(self, seed=seed)
        if method != "permutation":
            raise ValueError(f"importance: method must be 'permutation' or 'fanova', got {method!r}")
        from outbid._results.importance import importance

        return importance(self.trials, self.space_scales(), seed=seed)

    def space_scales(self) -> dict[str, bool]:
        """Return the numeric parameters by dotted path; the value is True for a log scale."""
        return dict(_scales(self._spec_of().space, ""))

    def _spec_of(self) -> sweep_pb2.SweepSpec:
        """Return the sweep's spec. It is fetched from the server once."""
        if self._spec is None:
            self._spec = self._client.spec(self.sweep.id)
        return self._spec

    def _columns(self) -> list[str]:
        """Return the names of the columns. Parameters that only some trials have are sorted with the others."""
        records = self.records()
        names = list(dict.fromkeys(name for record in records for name in record))
        config = sorted(name for name in names if name.startswith("config."))
        last = [name for name in names if name.startswith(("last.", "note."))]
        head = [name for name in ("trial", "state", "step", "metric", "best_step") if name in names]
        return [*head, *config, *last, *(n for n in names if n not in {*head, *config, *last})]

    def _why(self) -> str:
        errors = [note.text for note in self.sweep.notes if note.level == "error"]
        failed = [trial.reason for trial in self.trials if trial.state == "failed" and trial.reason]
        reason = (errors or failed or [self._reported() or self.sweep.reason or self.sweep.waiting])[-1]
        return f": {reason}" if reason else ""

    def _reported(self) -> str:
        """Say which metrics finished trials reported instead of the sweep's metric."""
        ended = [trial for trial in self.trials if trial.state in ("completed", "pruned")]
        names = sorted({name for trial in ended for name in trial.metrics})
        if self.sweep.metric in names:
            return "every value was NaN or infinite"
        if names:
            return f"they reported {', '.join(names)}; Sweep(metric=...) must be one of these"
        if ended:
            return f"they ended without trial.report({self.sweep.metric}=...), or reported after the loop over steps()"
        return ""


def _scales(space: Any, prefix: str) -> list[tuple[str, bool]]:
    found: list[tuple[str, bool]] = []
    for name, parameter in space.items():
        kind = parameter.WhichOneof("kind")
        if kind == "group":
            found.extend(_scales(parameter.group.space, f"{prefix}{name}."))
        elif kind in ("float", "int", "normal"):
            found.append((prefix + name, kind != "normal" and bool(getattr(parameter, kind).log)))
    return found
