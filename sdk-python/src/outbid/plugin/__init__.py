"""User-defined tuners and bidders: programs that the server starts and calls.

A tuner decides what a sweep trains and for how long:

    from outbid import plugin

    class Golden(plugin.Tuner):
        def ask(self, n):
            for _ in range(n):
                share = (self.created + 1) * 0.618 % 1
                yield plugin.Create(self.spec.space.at(share), until_step=10, reason="the next of the sequence")

        def reached(self, report):
            yield plugin.End(report.trial, reason="trained to the end")

    plugin.serve(Golden())

A sweep names the program with `tuner: {plugin: {command: [python3, golden.py]}}`.

A bidder (`Bidder`) bids for sweeps if the policy auctions devices:

    class Patient(plugin.Bidder):
        def bid(self, offer, app):
            rows = [row for row in app.own.rows if all(g.machines == 1 for g in row.gangs)]
            return plugin.Bid(app.own.rho, app.own.ideal, tuple(rows))

    plugin.serve(Patient())

The server is started with `outbid serve --bidder patient="python3 patient.py"`, and a sweep chooses the bidder with
`agent: {plugin: patient}`.

The server uses the protocol of hashicorp/go-plugin, which `serve` implements, so that a program only contains its
decisions. Its output goes to the server's log.
"""

from __future__ import annotations

import warnings
from typing import Any

from outbid._search.rung import Rung
from outbid.plugin._bidder import MAX_ROWS, AppState, Bid, Bidder, Gangs, Holding, Job, Lot, NoBid, Offer, Row, Speeds
from outbid.plugin._serve import serve
from outbid.plugin._settings import Settings
from outbid.plugin._space import Dimension, Space
from outbid.plugin._tuner import (
    Action,
    Clone,
    Create,
    End,
    Exit,
    Outlook,
    Pause,
    Report,
    Spec,
    Train,
    Tuner,
)

__all__ = [
    "MAX_ROWS",
    "Action",
    "AppState",
    "Bid",
    "Bidder",
    "Clone",
    "Create",
    "Dimension",
    "End",
    "Exit",
    "Gangs",
    "Holding",
    "Job",
    "Lot",
    "NoBid",
    "Offer",
    "Outlook",
    "Pause",
    "Report",
    "Row",
    "Rung",
    "Settings",
    "Space",
    "Spec",
    "Speeds",
    "Train",
    "Tuner",
    "serve",
]


def __getattr__(name: str) -> Any:
    if name == "Agent":
        warnings.warn("outbid.plugin.Agent is deprecated; write Bidder", DeprecationWarning, stacklevel=2)
        return Bidder
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
