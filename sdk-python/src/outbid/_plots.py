"""Plots of a result, with matplotlib (the extra outbid[plots])."""

from __future__ import annotations

import io
import math
import warnings
from typing import TYPE_CHECKING, Any, Protocol

from outbid._errors import MissingExtraError
from outbid._model import Report, SweepInfo, TrialResult, flatten

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


_MOST_CURVES = 200
_ABSENT = -1e9  # what encode() gives for a parameter that a trial has not
_BELOW = -0.15  # where it is drawn


class Source(Protocol):
    """What is drawn: a result."""

    sweep: SweepInfo
    trials: list[TrialResult]

    def reports(self) -> list[Report]:
        """Return every report, oldest first."""

    def space_scales(self) -> dict[str, bool]:
        """Return the numeric parameters, and whether each is on a log scale."""

    def importance(self) -> dict[str, float]:
        """Return how much each parameter matters."""


class Chart:
    """A drawn plot. Notebooks show it; `figure` is matplotlib's, `save(path)` writes a file."""

    def __init__(self, figure: Figure) -> None:
        self.figure = figure

    def __repr__(self) -> str:
        titles = ", ".join(ax.get_title() for ax in self.figure.axes)
        return f"<outbid.Chart: {titles}>"

    def save(self, path: str, *, dpi: int = 150) -> None:
        """Write the plot; the name's ending says how (.png, .svg, .pdf)."""
        self.figure.savefig(path, dpi=dpi)

    def _repr_png_(self) -> bytes:
        buffer = io.BytesIO()
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="Glyph")  # names in a script that the font has not
            self.figure.savefig(buffer, format="png", dpi=100)
        return buffer.getvalue()


class Plots:
    """The plots of one result. Each method draws into `ax` if it is given, else into a new figure."""

    def __init__(self, result: Source) -> None:
        try:
            import matplotlib.figure  # noqa: F401
        except ImportError:
            raise MissingExtraError("Result.plot needs matplotlib: pip install 'outbid[plots]'") from None
        self._result = result

    def history(self, ax: Axes | None = None) -> Chart:
        """Draw every trial's best value by trial number, and the best so far."""
        sweep = self._result.sweep
        scored = [(t.number, t.metric) for t in self._result.trials if _finite(t.metric)]
        chart, ax = _axes(ax)
        numbers = [number for number, _ in scored]
        values = [value for _, value in scored if value is not None]
        pick = min if sweep.mode == "min" else max
        best = [pick(values[: i + 1]) for i in range(len(values))]
        ax.plot(numbers, values, "o", ms=4, alpha=0.5, label="trials")
        ax.step(numbers, best, where="post", lw=2, label="best so far")
        ax.set(xlabel="trial", ylabel=sweep.metric, title=sweep.id)
        ax.legend()
        return chart

    def curves(self, metric: str | None = None, ax: Axes | None = None) -> Chart:
        """Draw the learning curve of every trial (of the best 200): a metric by step; the best trial's bold."""
        sweep = self._result.sweep
        metric = metric or sweep.metric
        shown = {t.number for t in _ranked(self._result)[:_MOST_CURVES]}
        curves: dict[int, dict[int, float]] = {}
        for report in self._result.reports():
            if report.trial in shown and metric in report.metrics and not report.superseded:
                # A repeated step replaces what was reported before.
                value = report.metrics[metric]
                curves.setdefault(report.trial, {})[report.step] = value if _finite(value) else float("nan")
        chart, ax = _axes(ax)
        best = sweep.best.number if sweep.best else -1
        for number, curve in sorted(curves.items()):
            steps = sorted(curve)
            bold = number == best
            ax.plot(
                steps,
                [curve[step] for step in steps],
                lw=2.5 if bold else 0.8,
                alpha=1 if bold else 0.5,
                zorder=3 if bold else 2,
                marker="." if len(steps) == 1 else "",
                label=f"trial {number} (best)" if bold else None,
            )
        ax.set(xlabel="step", ylabel=metric, title=sweep.id)
        if best in curves:
            ax.legend()
        return chart

    def parallel(self, ax: Axes | None = None) -> Chart:
        """Draw parallel coordinates: one axis for each varying parameter, one line for each trial."""
        from outbid._importance import encode

        sweep = self._result.sweep
        trials = _ranked(self._result)[::-1]  # the best are drawn last, on top
        scales = self._result.space_scales()
        configs = [flatten(t.config) for t in trials]
        names, x = encode(configs, scales)
        values = [t.metric for t in trials if t.metric is not None]
        columns = [[v for v in x[:, j] if v > _ABSENT] for j in range(len(names))]
        chart, ax = _axes(ax)
        for i, trial in enumerate(trials):
            place = _place(trial.metric, values)
            ys = [_place(v, columns[j]) if v > _ABSENT else _BELOW for j, v in enumerate(x[i])]
            good = 1 - place if sweep.mode == "min" else place
            ax.plot(range(len(names) + 1), [*ys, place], color=_colour(good), alpha=0.3 + 0.7 * good, lw=1)
        for j, name in enumerate([*names, sweep.metric]):
            shown: list[Any] = [c.get(name) for c in configs] if j < len(names) else list(values)
            ax.axvline(j, color="0.6", lw=0.8, zorder=1)
            for place, text in _marks(shown, named=name not in scales and j < len(names)):
                ax.annotate(text, (j, place), (3, 0), textcoords="offset points", fontsize=8, va="center")
        ax.set_xticks(range(len(names) + 1), [*names, sweep.metric], rotation=20)
        ax.set_yticks([])
        ax.set_xlim(-0.2, len(names) + 0.4)  # room for what stands beside the last axis
        ax.set_title(f"{sweep.id}: each line a trial, light ones good" if trials else sweep.id)
        return chart

    def importance(self, ax: Axes | None = None) -> Chart:
        """Draw how much each parameter matters for the metric; see `Result.importance`."""
        shares = self._result.importance()
        chart, ax = _axes(ax)
        names = list(shares)[::-1]
        ax.barh(names, [shares[name] for name in names], height=0.6)
        if not any(shares.values()):
            few = "too few trials, or trials too much alike, to say"
            ax.text(0.5, 0.5, few, transform=ax.transAxes, ha="center", va="center")
        ax.set_xlim(0, 1)
        ax.set(xlabel=f"share of importance for {self._result.sweep.metric}", title=self._result.sweep.id)
        return chart


def _axes(ax: Axes | None) -> tuple[Chart, Axes]:
    from matplotlib.figure import Figure

    if ax is not None:
        figure: Any = ax.figure
        return Chart(figure), ax
    fresh = Figure(figsize=(8, 4.5), layout="constrained")
    return Chart(fresh), fresh.add_subplot()


def _finite(value: float | None) -> bool:
    return value is not None and math.isfinite(value)


def _ranked(result: Source) -> list[TrialResult]:
    """Return the trials with a finite metric, best first."""
    sign = 1 if result.sweep.mode == "min" else -1
    scored = [(t.metric, t) for t in result.trials if t.metric is not None and math.isfinite(t.metric)]
    return [t for _, t in sorted(scored, key=lambda pair: (sign * pair[0], pair[1].number))]


def _place(value: float | None, among: list[float]) -> float:
    """Return where a value lies between the least (0) and the most (1)."""
    low, high = min(among), max(among)
    return 0.5 if value is None or high == low else (value - low) / (high - low)


def _marks(values: list[Any], *, named: bool) -> list[tuple[float, str]]:
    """Return what stands beside an axis, and where: its ends, or every value of a few named ones."""
    present = [value for value in values if value is not None]
    marks = [(_BELOW, "none")] if len(present) < len(values) else []
    if not present:
        return marks
    numbers = all(isinstance(v, (int, float)) and not isinstance(v, bool) for v in present)
    if named and not numbers:
        texts = sorted({repr(value): str(value) for value in present}.items())  # as encode() ranks them
        spread = max(1, len(texts) - 1)
        return marks + [(i / spread if len(texts) > 1 else 0.5, text[:12]) for i, (_, text) in enumerate(texts)][:12]
    low, high = min(present), max(present)
    if low == high:
        return [*marks, (0.5, f"{low:.3g}")]
    return [*marks, (0.0, f"{low:.3g}"), (1.0, f"{high:.3g}")]


def _colour(good: float) -> Any:
    from matplotlib import colormaps

    return colormaps["viridis"](good)
