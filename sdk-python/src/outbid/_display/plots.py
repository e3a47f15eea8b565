"""Plots of a result, with matplotlib (the extra outbid[plots])."""

from __future__ import annotations

import io
import math
import warnings
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias

from outbid._core.errors import MissingExtraError
from outbid._display import charts
from outbid._results.model import Report, SweepInfo, TrialResult, flatten

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


Backend: TypeAlias = Literal["matplotlib", "plotly"]
"""The library that draws: matplotlib, static, or plotly, interactive."""

_MOST_CURVES = 200
_ABSENT = -1e9  # encode()'s value for a missing parameter
_BELOW = -0.15  # its position in the plot


class Source(Protocol):
    """The data of plots, implemented by a result."""

    sweep: SweepInfo
    trials: list[TrialResult]

    def reports(self) -> list[Report]:
        """Return every report, oldest first."""

    def space_scales(self) -> dict[str, bool]:
        """Return the numeric parameters; the value is True for a log scale."""

    def importance(self, *, method: Literal["permutation", "fanova"] = "permutation") -> dict[str, float]:
        """Return how much each parameter matters."""


class Chart:
    """A plot. Notebooks show it; `figure` is the matplotlib figure, and `save(path)` writes a file."""

    def __init__(self, figure: Figure) -> None:
        self.figure = figure

    def __repr__(self) -> str:
        titles = [*(text.get_text() for text in self.figure.texts), *(ax.get_title() for ax in self.figure.axes)]
        return f"<outbid.Chart: {', '.join(filter(None, titles))}>"

    def save(self, path: str, *, dpi: int = 150) -> None:
        """Write the plot to a file; the suffix selects the format (.png, .svg, .pdf)."""
        self.figure.savefig(path, dpi=dpi)

    def _repr_png_(self) -> bytes:
        buffer = io.BytesIO()
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="Glyph")  # names in a script that the font does not support
            self.figure.savefig(buffer, format="png", dpi=100)
        return buffer.getvalue()


class InteractiveChart(Chart):
    """A plotly plot. Notebooks show it; `figure` is the plotly figure, and `save("plot.html")` writes a page."""

    def __init__(self, figure: Any) -> None:
        self.figure: Any = figure

    def __repr__(self) -> str:
        return f"<outbid.InteractiveChart: {self.figure.layout.title.text or ''}>"

    def save(self, path: str, *, dpi: int = 150) -> None:
        """Write the plot as a self-contained page, or as an image, which needs kaleido."""
        if str(path).endswith((".html", ".htm")):
            self.figure.write_html(path)
        else:
            self.figure.write_image(path)

    def _repr_mimebundle_(self, *args: Any, **kwargs: Any) -> Any:
        return self.figure._repr_mimebundle_(*args, **kwargs)

    def _repr_png_(self) -> bytes:
        return None  # type: ignore[return-value]  # the bundle contains all formats


class Plots:
    """The plots of one result. Each method draws into `ax` if it is given, otherwise into a new figure.

    With `backend="plotly"` methods return interactive charts like Optuna's, which needs plotly and Optuna.
    """

    def __init__(self, result: Source) -> None:
        try:
            import matplotlib.figure  # noqa: F401
        except ImportError:
            raise MissingExtraError("Result.plot needs matplotlib: pip install 'outbid[plots]'") from None
        self._result = result

    def slice(self, *, backend: Backend = "matplotlib") -> Chart:
        """Draw the metric over each varying parameter, in adjacent plots; newer trials are darker."""
        if other := self._other(backend, "slice"):
            return other
        points = self._points()
        chart = _figure(max(6.0, 2.6 * len(points.names) + 1))
        charts.draw_slice(points, chart.figure, self._result.sweep.metric, self._result.sweep.id)
        return chart

    def contour(
        self, x: str | None = None, y: str | None = None, ax: Axes | None = None, *, backend: Backend = "matplotlib"
    ) -> Chart:
        """Draw the metric over two parameters. The default is the two most important ones."""
        return self._plane("contour", x, y, ax, backend)

    def rank(
        self, x: str | None = None, y: str | None = None, ax: Axes | None = None, *, backend: Backend = "matplotlib"
    ) -> Chart:
        """Draw trials over two parameters, coloured by their rank; see `contour`."""
        return self._plane("rank", x, y, ax, backend)

    def front(self, ax: Axes | None = None, *, backend: Backend = "matplotlib") -> Chart:
        """Draw trials over the first two objectives, and the Pareto front; see `Result.front`."""
        objectives = self._result.sweep.objectives
        if len(objectives) < 2:
            raise ValueError(f"plot.front: {self._result.sweep.id} has one objective; give Sweep(metric=[...]) several")
        if other := self._other(backend, "front"):
            return other
        chart, ax = _axes(ax)
        charts.draw_front(self._result.trials, objectives, ax, self._result.sweep.id)
        return chart

    def edf(self, ax: Axes | None = None, *, backend: Backend = "matplotlib") -> Chart:
        """Draw the empirical distribution function of the metric."""
        if other := self._other(backend, "edf"):
            return other
        chart, ax = _axes(ax)
        charts.draw_edf(self._points(), ax, self._result.sweep.metric, self._result.sweep.id)
        return chart

    def timeline(self, ax: Axes | None = None, *, backend: Backend = "matplotlib") -> Chart:
        """Draw each trial from its creation to its end, coloured by state."""
        if other := self._other(backend, "timeline"):
            return other
        chart, ax = _axes(ax)
        charts.draw_timeline(self._result.sweep, self._result.trials, ax)
        return chart

    def _plane(self, kind: str, x: str | None, y: str | None, ax: Axes | None, backend: Backend) -> Chart:
        points = self._points()
        ranked = [name for name in self._result.importance() if name in points.names]
        names = [n for n in (x, y) if n] + [n for n in [*ranked, *points.names] if n not in (x, y)]
        chosen = list(dict.fromkeys(names))[:2]
        for name in chosen:
            if name not in points.names:
                there = ", ".join(points.names) or "none"
                raise ValueError(f"plot.{kind}: {name!r} is not a parameter that varies; these do: {there}")
        if len(chosen) < 2:
            raise ValueError(f"plot.{kind} needs two parameters that vary, there are {len(chosen)}")
        if other := self._other(backend, kind, params=chosen):
            return other
        chart, ax = _axes(ax)
        sweep, ranks = self._result.sweep, kind == "rank"
        smallest = sweep.mode == "min"
        first, second = chosen
        charts.draw_plane(points, ax, first, second, sweep.metric, sweep.id, smallest=smallest, ranks=ranks)
        return chart

    def _points(self) -> charts.Points:
        return charts.Points(self._result.trials, self._result.space_scales())

    def _other(self, backend: str, kind: str, **how: Any) -> Chart | None:
        """Return the chart of another backend, or None for matplotlib."""
        if backend == "matplotlib":
            return None
        if backend != "plotly":
            raise ValueError(f"plot: backend must be 'matplotlib' or 'plotly', got {backend!r}")
        return InteractiveChart(charts.by_plotly(self._result, kind, **how))

    def history(self, ax: Axes | None = None, *, backend: Backend = "matplotlib") -> Chart:
        """Draw every trial's best value by trial number, and the best value so far."""
        if other := self._other(backend, "optimization_history"):
            return other
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

    def curves(self, metric: str | None = None, ax: Axes | None = None, *, backend: Backend = "matplotlib") -> Chart:
        """Draw a metric by step for every trial (at most the best 200); the best trial's curve is bold."""
        if other := self._other(backend, "intermediate_values"):
            return other
        sweep = self._result.sweep
        metric = metric or sweep.metric
        shown = {t.number for t in _ranked(self._result)[:_MOST_CURVES]}
        curves: dict[int, dict[int, float]] = {}
        for report in self._result.reports():
            if report.trial in shown and metric in report.metrics and not report.superseded:
                # A repeated step replaces the earlier report.
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

    def parallel(self, ax: Axes | None = None, *, backend: Backend = "matplotlib") -> Chart:
        """Draw parallel coordinates, with an axis for each varying parameter and a line for each trial."""
        if other := self._other(backend, "parallel_coordinate"):
            return other
        from outbid._results.importance import encode

        sweep = self._result.sweep
        trials = _ranked(self._result)[::-1]  # the best are drawn last, on top
        scales = self._result.space_scales()
        configs = [flatten(t._stored) for t in trials]
        names, x = encode(configs, scales)
        values = [t.metric for t in trials if t.metric is not None]
        columns = [[v for v in x[:, j] if v > _ABSENT] for j in range(len(names))]
        chart, ax = _axes(ax, max(8.0, 1.4 * (len(names) + 1)))
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
        labels = [charts.wrapped(name, 14) for name in (*names, sweep.metric)]
        ax.set_xticks(range(len(labels)), labels, fontsize=9)
        ax.set_yticks([])
        ax.set_xlim(-0.2, len(names) + 0.4)  # room for the labels of the last axis
        ax.set_title(f"{sweep.id}: each line a trial, light ones good" if trials else sweep.id)
        return chart

    def importance(
        self,
        ax: Axes | None = None,
        *,
        method: Literal["permutation", "fanova"] = "permutation",
        backend: Backend = "matplotlib",
    ) -> Chart:
        """Draw how much each parameter matters for the metric; see `Result.importance`. Plotly's chart uses fANOVA."""
        if other := self._other(backend, "param_importances"):
            return other
        shares = self._result.importance(method=method)
        chart, ax = _axes(ax)
        names = list(shares)[::-1]
        ax.barh(names, [shares[name] for name in names], height=0.6)
        if not any(shares.values()):
            few = "too few trials, or too similar ones, for an estimate"
            ax.text(0.5, 0.5, few, transform=ax.transAxes, ha="center", va="center")
        ax.set_xlim(0, 1)
        ax.set(xlabel=f"share of importance for {self._result.sweep.metric}", title=self._result.sweep.id)
        return chart


def _axes(ax: Axes | None, width: float = 8.0) -> tuple[Chart, Axes]:
    """Return the axes to draw into, and their chart; new ones of a width in inches if none were given."""
    if ax is not None:
        figure: Any = ax.figure
        return Chart(figure), ax
    chart = _figure(width)
    return chart, chart.figure.add_subplot()


def _figure(width: float) -> Chart:
    from matplotlib.figure import Figure

    return Chart(Figure(figsize=(width, 4.5), layout="constrained"))


def _finite(value: float | None) -> bool:
    return value is not None and math.isfinite(value)


def _ranked(result: Source) -> list[TrialResult]:
    """Return the trials with a finite metric, best first."""
    sign = 1 if result.sweep.mode == "min" else -1
    scored = [(t.metric, t) for t in result.trials if t.metric is not None and math.isfinite(t.metric)]
    return [t for _, t in sorted(scored, key=lambda pair: (sign * pair[0], pair[1].number))]


def _place(value: float | None, among: list[float]) -> float:
    """Return the position of a value between the minimum (0) and the maximum (1)."""
    low, high = min(among), max(among)
    return 0.5 if value is None or high == low else (value - low) / (high - low)


def _marks(values: list[Any], *, named: bool) -> list[tuple[float, str]]:
    """Return the labels of an axis with their positions: its ends, or every value if there are few names."""
    present = [value for value in values if value is not None]
    marks = [(_BELOW, "none")] if len(present) < len(values) else []
    if not present:
        return marks
    numbers = all(isinstance(v, (int, float)) and not isinstance(v, bool) for v in present)
    if named and not numbers:
        texts = sorted({repr(value): str(value) for value in present}.items())  # in the order of encode()
        spread = max(1, len(texts) - 1)
        return marks + [(i / spread if len(texts) > 1 else 0.5, text[:12]) for i, (_, text) in enumerate(texts)][:12]
    low, high = min(present), max(present)
    if low == high:
        return [*marks, (0.5, f"{low:.3g}")]
    return [*marks, (0.0, f"{low:.3g}"), (1.0, f"{high:.3g}")]


def _colour(good: float) -> Any:
    from matplotlib import colormaps

    return colormaps["viridis"](good)
