"""Optuna's plots, drawn with matplotlib; and interactive plots by Optuna and plotly."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from outbid._core.errors import MissingExtraError
from outbid._results.model import SweepInfo, TrialResult, flatten
from outbid._search.objectives import front, values

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_LABEL = 18  # characters of a line of an axis's name
_FLAT = 2  # words at an axis that are not turned
_TICKS = 3  # spaces between numbers at an axis
_COLOURS = {
    "completed": "tab:blue",
    "pruned": "tab:orange",
    "failed": "tab:red",
    "stopped": "0.6",
    "running": "tab:green",
}


class Points:
    """The trials with a finite metric, with the values of their parameters as numbers."""

    def __init__(self, trials: Sequence[TrialResult], scales: dict[str, bool]) -> None:
        self.trials = [t for t in trials if t.metric is not None and math.isfinite(t.metric)]
        self.scores = [float(t.metric or 0) for t in self.trials]
        self.scales = scales
        configs = [flatten(t._stored) for t in self.trials]
        found = sorted({name for config in configs for name in config})
        self.columns = {n: [c.get(n) for c in configs] for n in found}
        self.names = [n for n in found if len({repr(v) for v in self.columns[n] if v is not None}) > 1]

    def numbers(self, name: str) -> tuple[list[float | None], list[str]]:
        """Return a parameter's values, or the indices of their words; then these words, which are empty for numbers."""
        column = self.columns[name]
        if name in self.scales or all(isinstance(v, (int, float)) and not isinstance(v, bool) for v in column if v):
            return [None if v is None else float(v) for v in column], []
        words = sorted({str(v) for v in column if v is not None})
        return [None if v is None else float(words.index(str(v))) for v in column], words

    def label(self, axis: Any, name: str) -> None:
        """Label an axis (`ax.xaxis` or `ax.yaxis`) with a parameter's name, and set the parameter's scale."""
        words = self.numbers(name)[1]
        axis.set_label_text(wrapped(name))
        if words:
            axis.axes.margins(0.15)
            axis.set_ticks(range(len(words)), [word[:12] for word in words])
            if axis.axis_name == "x":
                axis.set_tick_params(rotation=90 if len(words) > _FLAT else 0)
        elif self.scales.get(name):
            getattr(axis.axes, f"set_{axis.axis_name}scale")("log")
        elif axis.axis_name == "x":
            axis.get_major_locator().set_params(nbins=_TICKS)


def wrapped(name: str, most: int = _LABEL) -> str:
    """Return a name in lines of at most `most` characters, broken after dots and underscores where it can be."""
    lines = [""]
    for part in re.findall(r"[^._\-\s]*[._\-\s]?", name):
        for piece in (part[i : i + most] for i in range(0, len(part), most)):
            if len(lines[-1]) + len(piece) > most:
                lines.append("")
            lines[-1] += piece
    return "\n".join(lines)


def draw_slice(points: Points, figure: Figure, metric: str, title: str) -> None:
    """Draw the metric over each parameter, in adjacent plots."""
    wide = max(1, len(points.names))
    found = figure.subplots(1, wide, sharey=True, squeeze=False)[0]
    dots = None
    for ax, name in zip(found, points.names, strict=False):
        xs = points.numbers(name)[0]
        kept = [(x, y, t.number) for x, y, t in zip(xs, points.scores, points.trials, strict=True) if x is not None]
        dots = ax.scatter(
            [k[0] for k in kept], [k[1] for k in kept], c=[k[2] for k in kept], cmap="Blues", ec="0.4", s=25
        )
        points.label(ax.xaxis, name)
    found[0].set_ylabel(metric)
    if dots is not None:
        figure.colorbar(dots, ax=list(found), label="trial")
    figure.suptitle(title)


def draw_plane(
    points: Points, ax: Axes, x: str, y: str, metric: str, title: str, *, smallest: bool, ranks: bool
) -> None:
    """Draw trials over two parameters, coloured by metric over contours, or coloured by rank only."""
    xs, ys = points.numbers(x)[0], points.numbers(y)[0]
    kept = [(a, b, v) for a, b, v in zip(xs, ys, points.scores, strict=True) if a is not None and b is not None]
    scores = [v for *_, v in kept]
    order = sorted(scores, reverse=not smallest)
    colours = [float(order.index(v)) for v in scores] if ranks else scores
    cmap = "RdYlBu_r" if ranks else ("Blues_r" if smallest else "Blues")
    points.label(ax.xaxis, x)
    points.label(ax.yaxis, y)
    if not ranks and len({a for a, *_ in kept}) > 2 and len({b for _, b, _ in kept}) > 2:
        _contours(points, ax, (x, y), kept, cmap)
    dots = ax.scatter([k[0] for k in kept], [k[1] for k in kept], c=colours, cmap=cmap, ec="0.2", s=30, zorder=3)
    figure: Any = ax.figure
    bar = figure.colorbar(dots, ax=ax, label=f"rank by {metric}" if ranks else metric)
    if ranks:
        bar.set_ticks([0, max(len(order) - 1, 1)], labels=["best", "worst"])
    ax.set_title(title)


def _contours(points: Points, ax: Axes, names: tuple[str, str], kept: list[Any], cmap: str) -> None:
    import numpy as np
    from matplotlib.tri import LinearTriInterpolator, Triangulation

    log = [points.scales.get(name, False) for name in names]
    flat = [np.array([math.log(k[i]) if log[i] else k[i] for k in kept]) for i in (0, 1)]
    unit = [(v - v.min()) / (v.max() - v.min()) for v in flat]
    mesh = np.linspace(0, 1, 80)
    try:
        surface = LinearTriInterpolator(Triangulation(*unit), [k[2] for k in kept])(*np.meshgrid(mesh, mesh))
    except (RuntimeError, ValueError):
        return  # all points are on a line
    ends = [v.min() + mesh * (v.max() - v.min()) for v in flat]
    axes = [np.exp(e) if log[i] else e for i, e in enumerate(ends)]
    ax.use_sticky_edges = False  # so that markers at the edges are not cut off
    ax.contourf(axes[0], axes[1], surface, levels=12, cmap=cmap, alpha=0.8)


def draw_front(trials: Sequence[TrialResult], objectives: Sequence[tuple[str, str]], ax: Axes, title: str) -> None:
    """Draw trials over the first two objectives, with the Pareto front."""
    shown = [(t, v) for t in trials if t.state != "failed" and (v := values(t, objectives)) is not None]
    best = front(trials, objectives)
    numbers = {t.number for t in best}
    rest = [v for t, v in shown if t.number not in numbers]
    ax.plot([v[0] for v in rest], [v[1] for v in rest], "o", ms=4, alpha=0.4, color="0.4", label="trials")
    line = [v for t in best if (v := values(t, objectives)) is not None]
    style = "o-" if len(objectives) == 2 else "o"
    ax.plot([v[0] for v in line], [v[1] for v in line], style, color="tab:red", ms=5, lw=1, label="Pareto front")
    names = [f"{metric} ({mode})" for metric, mode in objectives[:2]]
    ax.set(xlabel=names[0], ylabel=names[1], title=title)
    ax.legend()


def draw_edf(points: Points, ax: Axes, metric: str, title: str) -> None:
    """Draw the empirical distribution function of the trials' metric."""
    scores = sorted(points.scores)
    ax.step(scores, [(i + 1) / len(scores) for i in range(len(scores))], where="post")
    ax.set(xlabel=metric, ylabel="share of trials at most this", title=title, ylim=(0, 1.02))
    ax.grid(alpha=0.3)


def draw_timeline(sweep: SweepInfo, trials: Sequence[TrialResult], ax: Axes) -> None:
    """Draw each trial from its creation to its end, coloured by state."""
    from matplotlib.ticker import MaxNLocator

    began = min((t.created for t in trials if t.created), default=None)
    last = max((t.ended for t in trials if t.ended), default=None)
    if began is not None:
        for trial in trials:
            if trial.created is None:
                continue
            start = (trial.created - began).total_seconds()
            end = trial.ended or max(filter(None, (sweep.ended, last, trial.created)))
            colour = _COLOURS.get(trial.state, "0.8")
            ax.barh(
                trial.number, max((end - began).total_seconds() - start, 0.01), left=start, color=colour, height=0.8
            )
    for state in sorted({t.state for t in trials}):
        ax.barh(0, 0, color=_COLOURS.get(state, "0.8"), label=state)
    ax.set(xlabel="seconds since the first trial", ylabel="trial", title=sweep.id)
    ax.yaxis.set_major_locator(MaxNLocator(integer=True))
    ax.invert_yaxis()
    if trials:
        ax.legend(loc="upper left", bbox_to_anchor=(1, 1))  # outside of the axes, because the bars may be everywhere


def by_plotly(result: Any, kind: str, **how: Any) -> Any:
    """Return a plotly figure that Optuna draws for a result."""
    try:
        import plotly.graph_objects as go
        from optuna import visualization

        from outbid.integrations.optuna.sweep_study import to_study_of_first
    except ImportError as error:
        raise MissingExtraError(
            f'backend="plotly" needs plotly and Optuna: pip install plotly "outbid[optuna]" ({error})'
        ) from None
    if kind == "front":
        return _plotly_front(result, go)
    study = to_study_of_first(result)
    draw: Callable[..., Any] = getattr(visualization, f"plot_{kind}")
    if kind in ("slice", "contour", "optimization_history", "rank", "parallel_coordinate", "param_importances", "edf"):
        how["target_name"] = result.sweep.metric
    return draw(study, **how)


def _plotly_front(result: Any, go: Any) -> Any:
    objectives = result.sweep.objectives
    best = result.front()
    numbers = {t.number for t in best}
    figure = go.Figure()
    others = [t for t in result.trials if t.number not in numbers and values(t, objectives) is not None]
    for name, trials, mode in (("trials", others, "markers"), ("Pareto front", best, "lines+markers")):
        points = [values(t, objectives) or () for t in trials]
        text = [f"trial {t.number}: {dict(t._stored)}" for t in trials]
        figure.add_scatter(x=[p[0] for p in points], y=[p[1] for p in points], mode=mode, name=name, text=text)
    return figure.update_layout(title=result.sweep.id, xaxis_title=objectives[0][0], yaxis_title=objectives[1][0])
