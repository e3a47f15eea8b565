"""Lays out a sweep's progress and its most informative trials as lines of limited width."""

from __future__ import annotations

import datetime
import math
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from rich.cells import cell_len, set_cell_size

from outbid._results.model import ENDED_TRIAL, SweepInfo, TrialResult, flatten, visible
from outbid._search.objectives import front

_SHOWN = 10  # trials in a table
_RUNNING = 3  # rows of the table that running trials have at the least
_RANKED = 2000  # trials of several objectives whose front is looked for
_NAME = 20  # columns for the metric's name, at the most
_CONFIG = 12  # minimum columns for parameters of the configuration without a separate column
_PAGE = 12  # parameters with a separate column in a notebook
_WINNER = 2000  # characters of the winning configuration, at the most
_BAR_FROM = 100  # columns of the screen from which a trial's progress is drawn next to its numbers
_BAR, _LEAST_BAR = 30, 5  # columns of the sweep's bar
# minimum seconds alone on the share; the rho of a shorter sweep only shows how long processes take to start
_RHO_FROM = 60.0
_SHARED_FROM = 1.01  # minimum sweeps on the cluster, on average; below it no other sweep used it, such as on a laptop
_GAP = "  "

Column = tuple[str, str, list[str]]
"""The name of a column, the side of its cells ("<" or ">"), and the cells."""

Line = tuple[str, str]
"""A line and its style: "bold", "dim" or ""."""


def lay_out(
    sweep: SweepInfo,
    trials: Iterable[TrialResult],
    width: int,
    rate: float,
    now: datetime.datetime,
    alike: Iterable[str] = (),
) -> list[Line]:
    """Return the state of a sweep in lines of at most `width` columns.

    `rate` is in steps per second; `alike` are lines that count trials with the same failure.
    """
    trials = list(trials)
    reason = f" ({sweep.reason})" if sweep.reason else ""
    head = f"{sweep.id}  {sweep.state}{reason}, {duration(elapsed(sweep, now))}{seed_text(sweep)}{memory_text(sweep)}"
    lines: list[Line] = [
        (head, "bold"),
        (f"trials  {trials_text(sweep)}", ""),
        (f"steps   {steps_text(sweep, rate, width=width - len('steps   '))}", ""),
        (f"best    {best_text(sweep)}", ""),
    ]
    if held := held_text(sweep, trials):
        lines.append((f"devices {held}" if "held" in held else f"shared  {held}", ""))
    if sweep.waiting and not sweep.over:
        lines.append((f"waits   {sweep.waiting}", ""))
    lines += [(f"failed  {text}", "") for text in alike]
    lines = [(cut(text, width), style) for text, style in lines]
    if trials:
        lines += [("", ""), *table(sweep, trials, width)]
    return lines


def table(sweep: SweepInfo, trials: Iterable[TrialResult], width: int) -> list[Line]:
    """Return the table of the most telling trials: only the configuration is cut to fit.

    Parameters that differ have columns as long as there is room, the others share the last one.
    """
    shown = telling(sweep, trials)
    best = sweep.best
    columns = trial_columns(sweep, shown)
    if width >= _BAR_FROM:
        columns.insert(3, ("", "<", [bar(t.step / t.until_step, 12) if t.until_step else "" for t in shown]))
    left = width - max(map(cell_len, _rows(columns)))
    configs = [flatten(visible(t._stored)) for t in shown]
    rest = list(dict.fromkeys(name for config in configs for name in config))
    parameters = parameter_columns(configs)
    widths = {name: len(_GAP) + max(map(cell_len, [head, *cells])) for name, (head, _, cells) in parameters.items()}
    kept = _CONFIG + len(_GAP)  # for those that have no column
    if sum(widths.values()) <= left or kept + min(widths.values()) > left:
        kept = 0
    for name, needed in widths.items():
        if needed <= left - kept:
            columns.append(parameters[name])
            rest.remove(name)
            left -= needed
    lines = _rows(columns)
    if rest and left >= _CONFIG + len(_GAP):
        texts = ["configuration", *config_texts({n: c[n] for n in rest if n in c} for c in configs)]
        lines = [line + _GAP + cut(text, left - len(_GAP)) for line, text in zip(lines, texts, strict=True)]
    styles = ["bold", *("bold" if best and t.number == best.number else "dim" if t.over else "" for t in shown)]
    return [(cut(line, width).rstrip(), style) for line, style in zip(lines, styles, strict=True)]


def trial_columns(sweep: SweepInfo, shown: list[TrialResult]) -> list[Column]:
    """Return the columns of a table of trials before those of their parameters; every objective has one."""
    others = [
        (cut(metric, _NAME), ">", [value_text(t.metrics.get(metric)) or "-" for t in shown])
        for metric, _ in sweep.objectives[1:]
    ]
    return [
        ("trial", ">", [str(t.number) for t in shown]),
        ("state", "<", [t.state for t in shown]),
        ("step", "<", [step_text(t) for t in shown]),
        (cut(sweep.metric, _NAME), ">", [value_text(t.metric) or "-" for t in shown]),
        *others,
    ]


def parameter_columns(configs: list[dict[str, Any]]) -> dict[str, Column]:
    """Return columns for parameters of flat configurations that differ, by name; of one configuration, for all."""
    found: dict[str, Column] = {}
    for name in dict.fromkeys(name for config in configs for name in config):
        values = [config.get(name, "") for config in configs]
        if len(configs) > 1 and len(set(map(repr, values))) == 1:
            continue
        numbers = all(isinstance(value, (int, float)) for value in values if value != "")
        cells = [f"{v:.4g}" if isinstance(v, float) else cut(str(v), _NAME) for v in values]
        found[name] = (name, ">" if numbers else "<", cells)
    short = Counter(name.rpartition(".")[2] for name in found)
    for name, (_, side, cells) in found.items():
        last = name.rpartition(".")[2]
        found[name] = (cut(last if short[last] == 1 else name, _NAME), side, cells)
    return found


def page_table(sweep: SweepInfo, shown: list[TrialResult]) -> tuple[list[str], list[list[str]]]:
    """Return the names of the columns, and the rows, of a notebook's table of trials."""
    configs = [flatten(visible(t._stored)) for t in shown]
    parameters = dict(list(parameter_columns(configs).items())[:_PAGE])
    columns = [*trial_columns(sweep, shown), *parameters.values()]
    rest = config_texts({n: v for n, v in config.items() if n not in parameters} for config in configs)
    if any(rest):
        columns.append(("configuration", "<", rest))
    return [name for name, _, _ in columns], [list(row) for row in zip(*(c for _, _, c in columns), strict=True)]


def _rows(columns: list[Column]) -> list[str]:
    widths = [max(map(cell_len, [name, *cells])) for name, _, cells in columns]
    rows = [[name for name, _, _ in columns], *map(list, zip(*(cells for _, _, cells in columns), strict=True))]
    sides = [side for _, side, _ in columns]
    return [
        _GAP.join(
            " " * (width - cell_len(cell)) + cell if side == ">" else cell + " " * (width - cell_len(cell))
            for cell, width, side in zip(row, widths, sides, strict=True)
        )
        for row in rows
    ]


def telling(sweep: SweepInfo, trials: Iterable[TrialResult]) -> list[TrialResult]:
    """Return the best trials, the best first, and then those that run and the newest, ten at the most."""
    trials = list(trials)
    best = _ranked(sweep, trials)[:_SHOWN]
    numbers = {t.number for t in best}
    order = {"running": 0, "queued": 1, "paused": 2}
    others = [t for t in trials if t.number not in numbers]
    others.sort(key=lambda t: (order.get(t.state, 3), -t.number))
    running = sum(t.state == "running" for t in others[:_RUNNING])
    return [*best[: _SHOWN - running], *others][:_SHOWN]


def _ranked(sweep: SweepInfo, trials: list[TrialResult]) -> list[TrialResult]:
    """Return the trials that have a value, the best first; of several objectives, the Pareto front first."""
    best, sign = sweep.best, 1 if sweep.mode == "min" else -1
    valued = [(t.metric, t) for t in trials if t.metric is not None and math.isfinite(t.metric)]
    first = {best.number} if best else set()
    if len(sweep.objectives) > 1 and len(trials) <= _RANKED:
        first = {t.number for t in front(trials, sweep.objectives)} or first
    return [t for _, t in sorted(valued, key=lambda v: (v[1].number not in first, sign * v[0], v[1].number))]


def trials_text(sweep: SweepInfo) -> str:
    """Return "3 of 30 ended, 2 running, 1 failed"."""
    if not sweep.counts.get("total"):
        return "none yet"
    ended = sum(sweep.counts.get(state, 0) for state in ENDED_TRIAL)
    of = f" of {sweep.total_trials:,}" if sweep.total_trials else ""
    others = (f"{sweep.counts[s]:,} {s}" for s in ("running", "queued", "paused", "failed") if sweep.counts.get(s))
    return ", ".join([f"{ended:,}{of} ended", *others])


def steps_text(sweep: SweepInfo, rate: float, *, width: int = 0) -> str:
    """Return the steps done and an estimate of the remaining time, with a bar if `width` is not 0."""
    parts = [f"{sweep.steps:,}"]
    done = share(sweep)
    if sweep.total_steps:
        parts = [f"{sweep.steps:,} of {sweep.total_steps:,}", f"{100 * (done or 0):.0f} %"]
    if rate and not sweep.over:
        parts.append(f"{rate:.3g}/s")
        if sweep.total_steps > sweep.steps:
            parts.append(f"about {duration((sweep.total_steps - sweep.steps) / rate)} left")
    text = ", ".join(parts)
    room = min(_BAR, width - cell_len(text) - 1)
    return f"{bar(done, room)} {text}" if done is not None and room >= _LEAST_BAR else text


def best_text(sweep: SweepInfo) -> str:
    """Return the best value and its trial."""
    best = sweep.best
    if best is None:
        return f"no trial reported {sweep.metric}" if sweep.over else f"no {sweep.metric} yet"
    others = "".join(f", {metric} {value_text(best.metrics[metric])}" for metric in _others(sweep, best))
    return f"{sweep.metric} {value_text(best.metric)}{others}, trial {best.number} at step {best.best_step:,}"


def _others(sweep: SweepInfo, trial: TrialResult) -> list[str]:
    """Return the objectives after the first for which a trial has a value."""
    return [metric for metric, _ in sweep.objectives[1:] if metric in trial.metrics]


def winner_text(sweep: SweepInfo) -> str:
    """Return the best value and its configuration in one line; "" if no trial reported the metric."""
    best = sweep.best
    if best is None or best.metric is None:
        return ""
    config = " ".join(repr(visible(best.config)).split())
    if len(config) > _WINNER:
        config = f"{config[:_WINNER]}…"
    others = "".join(f", {metric} {best.metrics[metric]:.6g}" for metric in _others(sweep, best))
    more = "; result.front() has all that are best" if len(sweep.objectives) > 1 else ""
    value = f"{best.metric:.6g}{others}"
    return f"best {sweep.metric} {value} (trial {best.number} at step {best.best_step:,}{more}): {config}"


def held_text(sweep: SweepInfo, trials: Iterable[TrialResult]) -> str:
    """Return the number of devices that the sweep holds and its rho, or "".

    A sweep that has ended has no device count. A sweep that was short or alone on the cluster has no rho.
    """
    places = [place for trial in trials for lease in trial.leases for place in lease.places if not place.ended]
    held = sum(len(place.devices) for place in places)
    fared = sweep.fairness
    tells = fared is not None and fared.alone_seconds >= _RHO_FROM and fared.mean_sweeps >= _SHARED_FROM
    rho = f"rho {fared.rho:.2f}" if fared is not None and tells else ""
    return ", ".join(text for text in (f"{held:,} held" if held and not sweep.over else "", rho) if text)


def share(sweep: SweepInfo) -> float | None:
    """Return the fraction of the work that is done, or None if it is unknown."""
    if sweep.total_steps:
        return min(1.0, sweep.steps / sweep.total_steps)
    if sweep.total_trials:
        ended = sum(sweep.counts.get(s, 0) for s in ENDED_TRIAL)
        return min(1.0, ended / sweep.total_trials)
    return None


def step_text(trial: TrialResult) -> str:
    """Return "27/81", or "27" without a target."""
    return f"{trial.step}/{trial.until_step}" if trial.until_step else str(trial.step)


def value_text(value: float | None) -> str:
    """Return a metric's value with five significant digits."""
    return "" if value is None else f"{value:.5g}"


def config_texts(configs: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return configurations, one line each. Common values come last, because a line may be cut."""
    flat = [flatten(visible(config)) for config in configs]
    counts = Counter((name, repr(value)) for config in flat for name, value in config.items())

    def alike(item: tuple[str, Any]) -> bool:
        return counts[item[0], repr(item[1])] == len(flat)

    return [
        " ".join(
            f"{name}={value:.4g}" if isinstance(value, float) else f"{name}={value}"
            for name, value in sorted(config.items(), key=alike)
        )
        for config in flat
    ]


def elapsed(sweep: SweepInfo, now: datetime.datetime) -> float:
    """Return the seconds from the submission to the end, or to `now`."""
    if sweep.submitted is None:
        return 0.0
    return max(0.0, ((sweep.ended or now) - sweep.submitted).total_seconds())


def seed_text(sweep: SweepInfo) -> str:
    """Return ", seed 7", or "" if the seed is unknown."""
    return f", seed {sweep.seed}" if sweep.seed is not None else ""


def memory_text(sweep: SweepInfo) -> str:
    """Return ", learned from digits-1 (40 trials)", or "" for a sweep that started from nothing."""
    names = ", ".join(f"{name} ({trials} trials)" for name, trials in sweep.memory)
    return f", learned from {names}" if names else ""


def duration(seconds: float) -> str:
    """Format seconds: 4s, 3m05s, 2h07m, 3d04h."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole}s"
    if whole < 3600:
        return f"{whole // 60}m{whole % 60:02}s"
    if whole < 48 * 3600:
        return f"{whole // 3600}h{whole // 60 % 60:02}m"
    return f"{whole // 86400}d{whole // 3600 % 24:02}h"


def bar(part: float, width: int) -> str:
    """Return a progress bar."""
    full = round(min(1.0, max(0.0, part)) * width)
    return "━" * full + "─" * (width - full)


def cut(text: str, width: int) -> str:
    """Return text in one line, cut with an ellipsis to `width` columns."""
    text = " ".join(text.split()) if "\n" in text or "\t" in text else text
    return text if cell_len(text) <= width else set_cell_size(text, max(width - 1, 0)).rstrip() + "…"
