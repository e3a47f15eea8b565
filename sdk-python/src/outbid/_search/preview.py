"""Preview: the outlook of a sweep before it starts."""

from __future__ import annotations

import html
from dataclasses import dataclass
from typing import Any

from outbid._display import html_table
from outbid._display.layout import config_texts
from outbid._search.rung import Rung


@dataclass(frozen=True)
class Preview:
    """The outlook of a sweep: total trials and steps (0 if unbounded), rungs, example configurations and warnings.

    `device_hours` is 0 unless `preview` was given `step_seconds`.
    """

    trials: int
    steps: int
    rungs: tuple[Rung, ...]
    device_hours: float
    examples: tuple[dict[str, Any], ...]
    warnings: tuple[str, ...]

    def _repr_html_(self) -> str:
        totals = f"{self.trials or 'any number of'} trials, {self.steps or 'any number of'} steps"
        if self.device_hours:
            totals += f", {self.device_hours:.3g} device-hours"
        rungs = [(str(r.bracket), str(r.until_step), str(r.trials), str(r.steps)) for r in self.rungs]
        examples = [(text,) for text in config_texts(self.examples)]
        return (
            f"<div><p><b>{totals}</b></p>{''.join(f'<p>warning: {html.escape(w)}</p>' for w in self.warnings)}"
            + (html_table.table(("bracket", "until step", "trials", "steps"), rungs) if rungs else "")
            + (html_table.table(("a few configurations",), examples) if examples else "")
            + "</div>"
        )


def as_trained(value: Any) -> Any:
    """Return a configuration as trials see it: keys sorted, whole numbers as ints. Protobuf messages keep neither."""
    if isinstance(value, dict):
        return {name: as_trained(inner) for name, inner in sorted(value.items())}
    if isinstance(value, list):
        return [as_trained(inner) for inner in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value
