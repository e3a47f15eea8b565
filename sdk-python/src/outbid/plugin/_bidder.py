"""Bidder, the base class of bidders, with the types of offers and bids."""

from __future__ import annotations

import abc
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from outbid._core.errors import InvalidError
from outbid.plugin._settings import Settings, plain_struct
from outbid.plugin._tuner import PROTOCOL
from outbid.v1 import auction_pb2, plugin_pb2

MAX_ROWS = 64
"""The maximum number of rows of a bid. A longer bid is refused."""

_SPREADS = ("slot", "machine", "rack", "cluster")
_SLOWDOWNS = (1.0, 1.0, 1.1, 1.3)


@dataclass(frozen=True)
class Lot:
    """The free devices of one type on one node. `slots` are the numbers of them behind each fast link."""

    node: str
    rack: str
    type: str
    free: int
    slots: tuple[int, ...] = ()


@dataclass(frozen=True)
class Offer:
    """The free devices in a round, and the total of each device type."""

    round: int
    lots: tuple[Lot, ...]
    cluster: Mapping[str, int]


@dataclass(frozen=True)
class Gangs:
    """`count` equal gangs, each of `devices` devices on each of `machines` nodes.

    They may be on any node, on the named `node`, or in one `rack`.
    """

    type: str
    devices: int
    machines: int = 1
    count: int = 1
    node: str = ""
    rack: str = ""

    @property
    def size(self) -> int:
        """The total number of devices."""
        return self.count * self.machines * self.devices


@dataclass(frozen=True)
class Row:
    """A subset of the offer, and the sweep's rho if it held that and its kept devices until its end."""

    rho: float
    gangs: tuple[Gangs, ...]

    @property
    def size(self) -> int:
        """The number of devices in the subset."""
        return sum(g.size for g in self.gangs)


@dataclass(frozen=True)
class Bid:
    """The value of subsets of the offer for a sweep. At most one of its rows is granted.

    `rho` is the sweep's finish-time fairness if it gets nothing. `ideal` is the seconds that it would take alone on its
    share of the cluster. A sweep with a large rho is served first, and the row that lowers it most has the highest
    value.
    """

    rho: float
    ideal: float
    rows: tuple[Row, ...] = ()


@dataclass(frozen=True)
class NoBid:
    """The reason why a sweep does not bid in this round."""

    reason: str


@dataclass(frozen=True)
class Holding:
    """A gang that a trial holds, and its steps per second."""

    type: str
    devices: int
    machines: int
    rate: float


class Speeds:
    """The speeds of a model: measured ones, or one step per second per device."""

    def __init__(self, message: plugin_pb2.SpeedTable | None) -> None:
        self._measured = list(message.measured) if message else []
        slowdowns = list(message.slowdown) if message else []
        self._slowdown = [s or usual for s, usual in zip([*slowdowns, 0, 0, 0, 0], _SLOWDOWNS, strict=False)]

    def rate(self, type: str, devices: int = 1, spread: str = "machine") -> float:
        """Return the steps per second of a gang; 0 if it does not run there.

        `spread` is the largest distance between its devices: "slot", "machine", "rack" or "cluster".
        """
        apart = _SPREADS.index(spread)
        if not self._measured:
            return devices / self._slowdown[apart]
        found: list[plugin_pb2.MeasuredSpeed] = []
        for name in (type, "", self._measured[0].type):
            found = found or [m for m in self._measured if m.type == name]
        near = min(found, key=lambda m: abs(m.devices - devices) * len(_SPREADS) + abs(m.spread - apart))
        rate = near.rate * devices / max(1, near.devices)
        return rate if near.spread == apart else rate * self._slowdown[near.spread] / self._slowdown[apart]


@dataclass(frozen=True)
class Job:
    """A trial that holds or needs devices. Steps are counted from its start; 0 means unknown."""

    trial: int
    done: float
    until: float
    total: float
    min_devices: int
    max_devices: int
    spread: bool
    types: tuple[str, ...]
    exclude: tuple[str, ...]
    speeds: Speeds
    held: Holding | None
    """The gang that it keeps in any case."""
    lost: Holding | None
    """The gang whose lease has ended, and whose devices are on offer."""
    leaving: bool
    """Whether it is saving and will free its devices."""

    @property
    def left(self) -> float:
        """The remaining steps; 0 if unknown."""
        return max(0.0, max(self.total, self.until) - self.done)


@dataclass(frozen=True)
class AppState:
    """The state of a sweep."""

    sweep: str
    tuner: str
    weight: float
    elapsed: float
    """Seconds since its submission."""
    mean_apps: float
    """The average number of sweeps in that time."""
    lots: tuple[Lot, ...]
    """The part of the offer that it may use."""
    jobs: tuple[Job, ...]
    speeds: Speeds
    """The speeds of trials that have not started."""
    steps_done: float
    steps: float
    """The total steps of the sweep; 0 if unknown."""
    settings: Settings
    """The sweep's settings for its bidder."""
    own: Bid
    """The bid that the server's own bidder would make."""
    message: plugin_pb2.AppState = field(repr=False)
    """The complete message."""

    def rho(self, seconds: float) -> float:
        """Return the sweep's rho if it ends in `seconds` from now."""
        return (self.elapsed + seconds) / self.own.ideal


class Bidder(abc.ABC):
    """Base class of bidders, which bid for devices for sweeps, once per round.

    The server checks every bid. All bids of a round are lost if one of them exceeds the offer or has invalid numbers,
    or if the bidder crashes or answers too late. Then the bidder is restarted.
    """

    name: ClassVar[str] = ""
    """The name that users see; the class's name if empty."""
    version: ClassVar[str] = "1"

    @abc.abstractmethod
    def bid(self, offer: Offer, app: AppState) -> Bid | NoBid:
        """Return the value of subsets of the offer for a sweep."""

    def bid_all(self, offer: Offer, apps: Sequence[AppState]) -> Sequence[Bid | NoBid]:
        """Return the bids of all sweeps of this bidder, in order. Override it to consider them together.

        A sweep with invalid settings has no bid.
        """
        return [self._bid(offer, app) for app in apps]

    def _bid(self, offer: Offer, app: AppState) -> Bid | NoBid:
        try:
            bid = self.bid(offer, app)
            app.settings.check()
        except InvalidError as error:
            return NoBid(str(error))
        return bid


class BidderSide:
    """Implements the calls of AgentService with a Bidder."""

    def __init__(self, bidder: Bidder) -> None:
        self._bidder = bidder

    def calls(self) -> dict[str, tuple[Callable[..., object], type]]:
        """Return the service's calls with their request types."""
        return {
            "Handshake": (self.handshake, plugin_pb2.HandshakeRequest),
            "Bid": (self.bid, plugin_pb2.BidRequest),
        }

    def handshake(self, request: plugin_pb2.HandshakeRequest) -> plugin_pb2.HandshakeResponse:
        """Return name and version."""
        if request.protocol != PROTOCOL:
            raise InvalidError(f"protocol {request.protocol} is unknown; this SDK speaks {PROTOCOL}")
        name = self._bidder.name or type(self._bidder).__name__
        return plugin_pb2.HandshakeResponse(protocol=PROTOCOL, name=name, version=self._bidder.version)

    def bid(self, request: plugin_pb2.BidRequest) -> plugin_pb2.BidResponse:
        """Return the bids of every sweep."""
        lots = tuple(Lot(m.node, m.rack, m.type, m.free, tuple(m.slots)) for m in request.lots)
        offer = Offer(request.round, lots, {m.type: m.devices for m in request.cluster})
        apps = [_app_state(m, offer) for m in request.apps]
        bids = self._bidder.bid_all(offer, apps)
        return plugin_pb2.BidResponse(tables=[_table(bid) for bid in bids])


def _app_state(m: plugin_pb2.AppState, offer: Offer) -> AppState:
    models = [Speeds(table) for table in m.speeds]
    lots = offer.lots
    if m.free:
        usable = zip(lots, m.free, strict=True)
        lots = tuple(Lot(lot.node, lot.rack, lot.type, free, lot.slots) for lot, free in usable if free)

    def speeds(index: int) -> Speeds:
        return models[index] if 0 <= index < len(models) else Speeds(None)

    return AppState(
        sweep=m.sweep,
        tuner=m.tuner,
        weight=m.weight,
        elapsed=m.elapsed_seconds,
        mean_apps=m.mean_apps,
        lots=lots,
        jobs=tuple(_job(j, speeds(j.speeds_index)) for j in m.jobs),
        speeds=speeds(m.speeds_index),
        steps_done=m.steps_done,
        steps=m.outlook.steps,
        settings=Settings(plain_struct(m.settings), "agent.settings"),
        own=_bid(m.own),
        message=m,
    )


def _job(j: plugin_pb2.AppJob, speeds: Speeds) -> Job:
    return Job(
        trial=j.trial,
        done=j.done,
        until=j.until,
        total=j.total,
        min_devices=j.min_devices,
        max_devices=j.max_devices,
        spread=j.spread,
        types=tuple(j.types),
        exclude=tuple(j.exclude),
        speeds=speeds,
        held=_holding(j.held),
        lost=_holding(j.lost),
        leaving=j.leaving,
    )


def _holding(m: plugin_pb2.Holding) -> Holding | None:
    return Holding(m.type, m.devices, m.machines, m.rate) if m.devices else None


def _bid(m: plugin_pb2.BidTable) -> Bid:
    rows = tuple(Row(row.rho, tuple(_gangs(g) for g in row.gangs)) for row in m.rows)
    return Bid(m.rho, m.ideal_seconds, rows)


def _gangs(m: auction_pb2.Gangs) -> Gangs:
    return Gangs(m.type, m.devices, m.machines, m.count, m.node, m.rack)


def _table(bid: Bid | NoBid) -> plugin_pb2.BidTable:
    if isinstance(bid, NoBid):
        return plugin_pb2.BidTable(refused=bid.reason or "no reason was given")
    table = plugin_pb2.BidTable(rho=bid.rho, ideal_seconds=bid.ideal)
    for row in bid.rows:
        out = table.rows.add(rho=row.rho)
        for g in row.gangs:
            out.gangs.add(type=g.type, devices=g.devices, machines=g.machines, count=g.count, node=g.node, rack=g.rack)
    return table
