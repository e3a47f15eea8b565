"""The base of agents, and what they hear and say."""

from __future__ import annotations

import abc
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from outbid._errors import InvalidError
from outbid.plugin._settings import Settings, plain_struct
from outbid.plugin._tuner import PROTOCOL
from outbid.v1 import auction_pb2, plugin_pb2

MAX_ROWS = 64
"""The most rows of a bid. A longer one is refused whole."""

_SPREADS = ("slot", "machine", "rack", "cluster")
_SLOWDOWNS = (1.0, 1.0, 1.1, 1.3)


@dataclass(frozen=True)
class Lot:
    """The free devices of one type on one machine. `slots` are those behind one fast link each."""

    node: str
    rack: str
    type: str
    free: int
    slots: tuple[int, ...] = ()


@dataclass(frozen=True)
class Offer:
    """What is free in a round, and how many devices of each type there are in all."""

    round: int
    lots: tuple[Lot, ...]
    cluster: Mapping[str, int]


@dataclass(frozen=True)
class Gangs:
    """`count` alike gangs, each of `devices` devices on each of `machines` machines.

    They are on any machine, on the named `node`, or in one `rack`.
    """

    type: str
    devices: int
    machines: int = 1
    count: int = 1
    node: str = ""
    rack: str = ""

    @property
    def size(self) -> int:
        """The devices of all of them."""
        return self.count * self.machines * self.devices


@dataclass(frozen=True)
class Row:
    """A subset of the offer, and the sweep's rho if it held that beside what it keeps until it is done."""

    rho: float
    gangs: tuple[Gangs, ...]

    @property
    def size(self) -> int:
        """The devices of the subset."""
        return sum(g.size for g in self.gangs)


@dataclass(frozen=True)
class Bid:
    """What subsets of the offer are worth to a sweep. At most one of its rows is granted.

    `rho` is its finish-time fairness if it is granted nothing, `ideal` the seconds that it would take alone on its
    share of the cluster. A sweep with a large rho is served first, and the row that lowers it most is worth most.
    """

    rho: float
    ideal: float
    rows: tuple[Row, ...] = ()


@dataclass(frozen=True)
class NoBid:
    """A sweep wants nothing of this round, and why."""

    reason: str


@dataclass(frozen=True)
class Holding:
    """A gang as it is held, and its steps per second."""

    type: str
    devices: int
    machines: int
    rate: float


class Speeds:
    """How fast a model trains: what was measured, and one step per second on a device where nothing was."""

    def __init__(self, message: plugin_pb2.SpeedTable | None) -> None:
        self._measured = list(message.measured) if message else []
        slowdowns = list(message.slowdown) if message else []
        self._slowdown = [s or usual for s, usual in zip([*slowdowns, 0, 0, 0, 0], _SLOWDOWNS, strict=False)]

    def rate(self, type: str, devices: int = 1, spread: str = "machine") -> float:
        """Return the steps per second of a gang; 0 if it does not run there.

        `spread` is how far its devices are apart: "slot", "machine", "rack" or "cluster".
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
    """A trial that holds devices or wants some. Steps are counted from its start; 0 is unknown."""

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
    """What it keeps whatever the round brings."""
    lost: Holding | None
    """What it holds on a lease that is up, and that is on offer."""
    leaving: bool
    """It is saving, and about to leave its devices."""

    @property
    def left(self) -> float:
        """The steps to its end; 0 if unknown."""
        return max(0.0, max(self.total, self.until) - self.done)


@dataclass(frozen=True)
class AppState:
    """A sweep as it stands."""

    sweep: str
    tuner: str
    weight: float
    elapsed: float
    """Seconds since it was submitted."""
    mean_apps: float
    """The mean number of sweeps there were in that time."""
    lots: tuple[Lot, ...]
    """What of the offer it may use."""
    jobs: tuple[Job, ...]
    speeds: Speeds
    """Of trials that are still to come."""
    steps_done: float
    steps: float
    """Steps that the sweep will train in all; 0 if unknown."""
    settings: Settings
    """What the sweep says to its agent."""
    own: Bid
    """What the server's own agent would bid."""
    message: plugin_pb2.AppState = field(repr=False)
    """All that is known."""

    def rho(self, seconds: float) -> float:
        """Return the sweep's rho if it is done in so many seconds from now."""
        return (self.elapsed + seconds) / self.own.ideal


class Agent(abc.ABC):
    """Base of agents: they bid for devices on the behalf of sweeps, once a round.

    The server checks every bid. One for more than was offered, or with numbers that make no sense, loses all bids of
    the round, as a crash or an answer that comes too late does, and the agent is started again.
    """

    name: ClassVar[str] = ""
    """Shown to users; the class's name if empty."""
    version: ClassVar[str] = "1"

    @abc.abstractmethod
    def bid(self, offer: Offer, app: AppState) -> Bid | NoBid:
        """Return what subsets of the offer are worth to a sweep."""

    def bid_all(self, offer: Offer, apps: Sequence[AppState]) -> Sequence[Bid | NoBid]:
        """Return the bids of all sweeps that the agent speaks for, in order. Override it to weigh them together.

        A sweep whose settings are wrong has no bid.
        """
        return [self._bid(offer, app) for app in apps]

    def _bid(self, offer: Offer, app: AppState) -> Bid | NoBid:
        try:
            bid = self.bid(offer, app)
            app.settings.check()
        except InvalidError as error:
            return NoBid(str(error))
        return bid


class AgentSide:
    """The calls of AgentService, over one Agent."""

    def __init__(self, agent: Agent) -> None:
        self._agent = agent

    def calls(self) -> dict[str, tuple[Callable[..., object], type]]:
        """Return the service's calls and what they take."""
        return {
            "Handshake": (self.handshake, plugin_pb2.HandshakeRequest),
            "Bid": (self.bid, plugin_pb2.BidRequest),
        }

    def handshake(self, request: plugin_pb2.HandshakeRequest) -> plugin_pb2.HandshakeResponse:
        """Say who it is."""
        if request.protocol != PROTOCOL:
            raise InvalidError(f"protocol {request.protocol} is unknown; this SDK speaks {PROTOCOL}")
        name = self._agent.name or type(self._agent).__name__
        return plugin_pb2.HandshakeResponse(protocol=PROTOCOL, name=name, version=self._agent.version)

    def bid(self, request: plugin_pb2.BidRequest) -> plugin_pb2.BidResponse:
        """Bid for every sweep."""
        lots = tuple(Lot(m.node, m.rack, m.type, m.free, tuple(m.slots)) for m in request.lots)
        offer = Offer(request.round, lots, {m.type: m.devices for m in request.cluster})
        apps = [_app_state(m, offer) for m in request.apps]
        bids = self._agent.bid_all(offer, apps)
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
        return plugin_pb2.BidTable(refused=bid.reason or "it gave no reason")
    table = plugin_pb2.BidTable(rho=bid.rho, ideal_seconds=bid.ideal)
    for row in bid.rows:
        out = table.rows.add(rho=row.rho)
        for g in row.gangs:
            out.gangs.add(type=g.type, devices=g.devices, machines=g.machines, count=g.count, node=g.node, rack=g.rack)
    return table
