"""Tuner, the base class of tuners, with the types of events and actions."""

from __future__ import annotations

import abc
import hashlib
import json
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, TypeAlias

from outbid._core.errors import InvalidError
from outbid._search.rung import Rung
from outbid.plugin._settings import Settings, plain_struct
from outbid.plugin._space import Space
from outbid.v1 import event_pb2, plugin_pb2, sweep_pb2

PROTOCOL = 1


@dataclass(frozen=True)
class Report:
    """A trial's report at a step. `metric` is the value of the sweep's metric, NaN if it was not reported."""

    trial: int
    step: int
    metric: float
    metrics: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Exit:
    """A trial ended without an order: by itself, or because it `failed` and cannot be restarted.

    `metric` is its newest value, or NaN; `metrics` is its last report.
    """

    trial: int
    step: int
    metric: float
    failed: bool
    metrics: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Create:
    """Start the next trial and train it to a step; 0 leaves the end to the training code.

    The first trial created has number 0, the next number 1, and so on. A seed of None is derived from the sweep's seed.
    """

    config: Mapping[str, Any]
    until_step: int = 0
    reason: str = field(default="", kw_only=True)
    bracket: int = field(default=0, kw_only=True)
    seed: int | None = field(default=None, kw_only=True)


@dataclass(frozen=True)
class Train:
    """Continue a trial that reached its target to a later step."""

    trial: int
    until_step: int
    reason: str = field(default="", kw_only=True)


@dataclass(frozen=True)
class Pause:
    """Pause a trial that reached its target, which frees its devices. Train resumes it."""

    trial: int
    reason: str = field(default="", kw_only=True)


@dataclass(frozen=True)
class End:
    """End a trial: as completed if it was trained as long as intended, otherwise as pruned."""

    trial: int
    completed: bool = True
    reason: str = field(default="", kw_only=True)


@dataclass(frozen=True)
class Clone:
    """Continue a trial that reached its target from another trial's newest checkpoint, with another configuration."""

    trial: int
    source: int
    config: Mapping[str, Any]
    until_step: int
    reason: str = field(default="", kw_only=True)


Action: TypeAlias = Create | Train | Pause | End | Clone
"""The actions of a tuner."""


@dataclass(frozen=True)
class Outlook:
    """The total work of a tuner; 0 for unknown numbers."""

    trials: int = 0
    steps: int = 0
    rungs: tuple[Rung, ...] = ()


@dataclass(frozen=True)
class Spec:
    """The sweep of a tuner."""

    name: str
    metric: str
    maximise: bool
    space: Space
    settings: Settings
    """The sweep's settings for the plugin."""
    max_steps: int
    """The maximum steps of a trial; 0 if unlimited."""
    seed: int
    constraints: tuple[str, ...]
    """Constraints on configurations. The server does not check the tuner's configurations against them."""
    trials: int
    """The maximum number of trials of the sweep; 0 if unlimited."""
    objectives: tuple[tuple[str, bool], ...]
    """All objectives, `metric` first, each with whether higher is better."""
    points: tuple[Mapping[str, Any], ...]
    """The first configurations to try, as given by the sweep."""
    message: sweep_pb2.SweepSpec = field(repr=False)
    """The complete message."""

    def better(self, a: float, b: float | None) -> bool:
        """Return whether metric `a` is better than `b`. NaN is never better; any number is better than None."""
        if math.isnan(a):
            return False
        if b is None or math.isnan(b):
            return True
        return a > b if self.maximise else a < b


class Tuner(abc.ABC):
    """Base class of tuners. A subclass responds to events with actions and keeps its knowledge in `state`.

    Only events may determine the actions: the clock must not, nor randomness that is not in the state or derived from
    `spec.seed`. Then a restarted server reaches the same state by `restore` and the events since the snapshot.
    """

    name: ClassVar[str] = ""
    """The name that users see; the class's name if empty."""
    version: ClassVar[str] = "1"

    spec: Spec
    """The sweep. It is replaced when the sweep is extended."""
    created: int = 0
    """The number of created trials, which is the number of the next trial."""
    state: Any = None
    """The tuner's knowledge as JSON values. It is None when `start` is called for the first time."""

    def start(self) -> None:  # noqa: B027
        """Start: read the settings and create the state if it is None. Raise InvalidError for bad settings."""

    @abc.abstractmethod
    def ask(self, n: int) -> Iterable[Create | Train]:
        """Start or continue at most `n` trials, which can run now."""

    @abc.abstractmethod
    def reached(self, report: Report) -> Iterable[Action]:
        """Decide on a trial that reached its target. It waits until an action names it."""

    def reported(self, report: Report) -> Iterable[Action]:
        """Handle a report of a trial that has not reached its target."""
        return ()

    def exited(self, exit: Exit) -> Iterable[Action]:
        """Handle the end of a trial that was not ended by an action. It can only be named as a Clone's source."""
        return ()

    def extended(self) -> Iterable[Action]:
        """Handle an extension of the sweep: `spec` is the new one. Completed trials may be continued."""
        return ()

    def exhausted(self) -> bool:
        """Return whether all trials have been created; called after every event."""
        return bool(self.spec.trials) and self.created >= self.spec.trials

    def waiting(self) -> bool:
        """Return whether nothing can run until a trial reports; called after every event."""
        return False

    def outlook(self) -> Outlook:
        """Return how much work there is in total."""
        return Outlook(trials=self.spec.trials)

    def snapshot(self) -> bytes:
        """Return the tuner's knowledge: `state` as JSON, unless overridden."""
        return json.dumps(self.state).encode()

    def restore(self, snapshot: bytes) -> None:
        """Restore a snapshot. `start` is called afterwards."""
        self.state = json.loads(snapshot)


class TunerSide:
    """Implements the calls of TunerService with a Tuner; with `channel`, Handle is also called through the channel."""

    def __init__(self, tuner: Tuner, *, channel: bool = False) -> None:
        self._tuner = tuner
        self._channel = channel

    def calls(self) -> dict[str, tuple[Callable[..., object], type]]:
        """Return the service's calls with their request types."""
        return {
            "Configure": (self.configure, plugin_pb2.ConfigureRequest),
            "Handle": (self.handle, plugin_pb2.HandleRequest),
            "Snapshot": (self.snapshot, plugin_pb2.SnapshotRequest),
        }

    def configure(self, request: plugin_pb2.ConfigureRequest) -> plugin_pb2.ConfigureResponse:
        """Start the tuner, with its snapshot if there is one."""
        t = self._tuner
        if request.protocol != PROTOCOL:
            raise InvalidError(f"protocol {request.protocol} is unknown; this SDK speaks {PROTOCOL}")
        t.spec = spec_of(request.spec)
        if request.snapshot:
            created, _, own = request.snapshot.partition(b"\n")
            t.created = int(created)
            t.restore(own)
        t.start()
        t.spec.settings.check()
        name = t.name or type(t).__name__
        return plugin_pb2.ConfigureResponse(
            name=name, version=t.version, outlook=_outlook(t.outlook()), each=True, channel=self._channel
        )

    def handle(self, request: plugin_pb2.HandleRequest) -> plugin_pb2.HandleResponse:
        """Pass each event to the tuner."""
        if not request.each:
            return self._answer(request.events)
        response, over = plugin_pb2.HandleResponse(), set[int]()
        for event in request.events:
            # An earlier action may have ended the event's trial: then the tuner does not get the event.
            heard = [] if _trial_of(event) in over else [event]
            answer = self._answer(heard)
            over.update(action.end.trial for action in answer.actions if action.HasField("end"))
            response.each.append(answer)
        return response

    def _answer(self, events: Iterable[plugin_pb2.TunerEvent]) -> plugin_pb2.HandleResponse:
        t, response = self._tuner, plugin_pb2.HandleResponse()
        for event in events:
            for action in self._heard(event) or ():
                response.actions.append(self._message(action))
            if event.HasField("extended"):
                response.outlook.CopyFrom(_outlook(t.outlook()))
        response.waiting, response.exhausted = t.waiting(), t.exhausted()
        return response

    def snapshot(self, request: plugin_pb2.SnapshotRequest) -> plugin_pb2.SnapshotResponse:
        """Return the number of trials, which the base class counts, and the tuner's snapshot."""
        return plugin_pb2.SnapshotResponse(snapshot=b"%d\n%s" % (self._tuner.created, self._tuner.snapshot()))

    def _heard(self, event: plugin_pb2.TunerEvent) -> Iterable[Action]:
        t = self._tuner
        kind = event.WhichOneof("kind")
        if kind == "ask":
            return t.ask(event.ask)
        if kind == "reported":
            return t.reported(_report(event.reported))
        if kind == "reached":
            return t.reached(_report(event.reached))
        if kind == "exited":
            e = event.exited
            return t.exited(Exit(e.trial, e.step, e.metric, e.state == event_pb2.TRIAL_STATE_FAILED, dict(e.metrics)))
        if kind == "extended":
            t.spec = spec_of(event.extended)
            return t.extended()
        raise InvalidError("unknown kind of event; the server is newer than this SDK")

    def _message(self, action: Action) -> plugin_pb2.TunerAction:
        m = plugin_pb2.TunerAction(reason=action.reason)
        if isinstance(action, Create):
            seed = _seed(self._tuner.spec.seed, self._tuner.created) if action.seed is None else action.seed
            self._tuner.created += 1
            m.create.config_json = _json(action.config)
            m.create.until_step, m.create.bracket, m.create.seed = action.until_step, action.bracket, seed
        elif isinstance(action, Train):
            m.train.trial, m.train.until_step = action.trial, action.until_step
        elif isinstance(action, Pause):
            m.pause.trial = action.trial
        elif isinstance(action, End):
            m.end.trial = action.trial
            m.end.state = event_pb2.TRIAL_STATE_COMPLETED if action.completed else event_pb2.TRIAL_STATE_STOPPED
        elif isinstance(action, Clone):
            m.clone.trial, m.clone.source = action.trial, action.source
            m.clone.config_json, m.clone.until_step = _json(action.config), action.until_step
        else:
            raise TypeError(f"{action!r} is not an action: use Create, Train, Pause, End or Clone")
        return m


def spec_of(message: sweep_pb2.SweepSpec) -> Spec:
    """Convert a sweep's spec for a tuner."""
    own = message.tuner.plugin
    return Spec(
        name=message.name,
        metric=message.metric,
        maximise=message.mode == "max",
        space=Space(message.space),
        settings=Settings(plain_struct(own.settings), "tuner.plugin.settings"),
        max_steps=own.max_steps,
        seed=message.tuner.seed,
        constraints=tuple(message.constraints),
        trials=message.limits.trials,
        objectives=(
            (message.metric, message.mode == "max"),
            *((o.metric, o.mode == "max") for o in message.objectives),
        ),
        points=tuple(plain_struct(point) for point in message.tuner.points),
        message=message,
    )


def _trial_of(event: plugin_pb2.TunerEvent) -> int | None:
    """Return the trial of an event, or None."""
    kind = event.WhichOneof("kind")
    return int(getattr(event, kind).trial) if kind in ("reported", "reached", "exited") else None


def _report(m: plugin_pb2.TunerReport) -> Report:
    return Report(m.trial, m.step, m.metric, dict(m.metrics))


def _outlook(o: Outlook) -> sweep_pb2.Outlook:
    message = sweep_pb2.Outlook(trials=o.trials, steps=o.steps)
    for r in o.rungs:
        message.rungs.add(bracket=r.bracket, until_step=r.until_step, trials=r.trials, steps=r.steps)
    return message


def _seed(seed: int, trial: int) -> int:
    """Return a trial's seed, which is evenly distributed and depends on the sweep's seed and the trial."""
    return int.from_bytes(hashlib.sha256(f"{seed}/{trial}".encode()).digest()[:8], "big")


def _json(config: Mapping[str, Any]) -> str:
    """Return a configuration as canonical JSON. Numpy numbers become Python's."""
    return json.dumps(_plain(config), sort_keys=True, separators=(",", ":"), allow_nan=False)


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(k): _plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(v) for v in value]
    item = getattr(value, "item", None)
    return item() if callable(item) else value
