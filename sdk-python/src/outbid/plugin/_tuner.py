"""The base of tuners, and what they hear and say."""

from __future__ import annotations

import abc
import hashlib
import json
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, TypeAlias

from outbid._errors import InvalidError
from outbid._rung import Rung
from outbid.plugin._settings import Settings, plain_struct
from outbid.plugin._space import Space
from outbid.v1 import event_pb2, plugin_pb2, sweep_pb2

PROTOCOL = 1


@dataclass(frozen=True)
class Report:
    """What a trial said at a step. `metric` is the sweep's, NaN if the trial did not report it."""

    trial: int
    step: int
    metric: float
    metrics: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Exit:
    """A trial ended without being told to: by itself, or for good if it `failed`.

    `metric` is its newest, or NaN; `metrics` are all that it reported last.
    """

    trial: int
    step: int
    metric: float
    failed: bool
    metrics: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Create:
    """Start the next trial, and train it until a step; 0 leaves the end to the training code.

    The first trial created is number 0, the next number 1, and so on. A seed of None is made of the sweep's.
    """

    config: Mapping[str, Any]
    until_step: int = 0
    reason: str = field(default="", kw_only=True)
    bracket: int = field(default=0, kw_only=True)
    seed: int | None = field(default=None, kw_only=True)


@dataclass(frozen=True)
class Train:
    """Let a trial that reached its target go on until a later step."""

    trial: int
    until_step: int
    reason: str = field(default="", kw_only=True)


@dataclass(frozen=True)
class Pause:
    """Take a trial that reached its target off its devices; a Train resumes it."""

    trial: int
    reason: str = field(default="", kw_only=True)


@dataclass(frozen=True)
class End:
    """End a trial: as completed if it was trained as far as it was meant to, else as stopped early."""

    trial: int
    completed: bool = True
    reason: str = field(default="", kw_only=True)


@dataclass(frozen=True)
class Clone:
    """Continue a trial that reached its target from another's newest checkpoint, with another configuration."""

    trial: int
    source: int
    config: Mapping[str, Any]
    until_step: int
    reason: str = field(default="", kw_only=True)


Action: TypeAlias = Create | Train | Pause | End | Clone
"""What a tuner can want."""


@dataclass(frozen=True)
class Outlook:
    """How much work a tuner will do in all; 0 for what it does not know."""

    trials: int = 0
    steps: int = 0
    rungs: tuple[Rung, ...] = ()


@dataclass(frozen=True)
class Spec:
    """The sweep that a tuner works for."""

    name: str
    metric: str
    maximise: bool
    space: Space
    settings: Settings
    """The plugin's own settings."""
    max_steps: int
    """Steps a trial is trained for at the most; 0 for no bound."""
    seed: int
    constraints: tuple[str, ...]
    """Constraints on configurations. The server does not check what a tuner answers against them."""
    trials: int
    """The most trials that the sweep may have; 0 for no bound."""
    objectives: tuple[tuple[str, bool], ...]
    """All metrics that are optimised, `metric` first, each with whether more is better."""
    points: tuple[Mapping[str, Any], ...]
    """The first configurations to try, as the sweep gives them."""
    message: sweep_pb2.SweepSpec = field(repr=False)
    """All that the sweep says."""

    def better(self, a: float, b: float | None) -> bool:
        """Say whether metric `a` is better than `b`. NaN is better than nothing, and None worse than any number."""
        if math.isnan(a):
            return False
        if b is None or math.isnan(b):
            return True
        return a > b if self.maximise else a < b


class Tuner(abc.ABC):
    """Base of tuners. A subclass answers events with actions, and keeps what it knows in `state`.

    Nothing but the events may decide what it answers: no clock, no randomness that is not in its state or made of
    `spec.seed`. Then a server that is started again comes to where it was by `restore` and the events since.
    """

    name: ClassVar[str] = ""
    """Shown to users; the class's name if empty."""
    version: ClassVar[str] = "1"

    spec: Spec
    """The sweep. It is replaced when the sweep is extended."""
    created: int = 0
    """How many trials were created: the number of the next."""
    state: Any = None
    """All that the tuner knows, as JSON can hold it. It is None when `start` is called for the first time."""

    def start(self) -> None:  # noqa: B027
        """Begin: read the settings, make the state if there is none. Raise InvalidError for bad settings."""

    @abc.abstractmethod
    def ask(self, n: int) -> Iterable[Create | Train]:
        """Start or train on at most `n` trials, which could run at once."""

    @abc.abstractmethod
    def reached(self, report: Report) -> Iterable[Action]:
        """Say how a trial that is at its target goes on. It waits until some answer names it."""

    def reported(self, report: Report) -> Iterable[Action]:
        """Hear of a trial that is not yet at its target."""
        return ()

    def exited(self, exit: Exit) -> Iterable[Action]:
        """Hear of a trial that ended without being told to. It cannot be named any more but as a Clone's source."""
        return ()

    def extended(self) -> Iterable[Action]:
        """Hear that the sweep was extended: `spec` is the new one. Completed trials may be trained on."""
        return ()

    def exhausted(self) -> bool:
        """Say whether there will be no more trials than there are; asked after every event."""
        return bool(self.spec.trials) and self.created >= self.spec.trials

    def waiting(self) -> bool:
        """Say whether there is nothing to run until some trial is heard of; asked after every event."""
        return False

    def outlook(self) -> Outlook:
        """Say how much there is to do in all."""
        return Outlook(trials=self.spec.trials)

    def snapshot(self) -> bytes:
        """Return all that the tuner knows: `state` as JSON, unless a subclass knows better."""
        return json.dumps(self.state).encode()

    def restore(self, snapshot: bytes) -> None:
        """Take up a snapshot. `start` is called afterwards."""
        self.state = json.loads(snapshot)


class TunerSide:
    """The calls of TunerService, over one Tuner."""

    def __init__(self, tuner: Tuner) -> None:
        self._tuner = tuner

    def calls(self) -> dict[str, tuple[Callable[..., object], type]]:
        """Return the service's calls and what they take."""
        return {
            "Configure": (self.configure, plugin_pb2.ConfigureRequest),
            "Handle": (self.handle, plugin_pb2.HandleRequest),
            "Snapshot": (self.snapshot, plugin_pb2.SnapshotRequest),
        }

    def configure(self, request: plugin_pb2.ConfigureRequest) -> plugin_pb2.ConfigureResponse:
        """Start the tuner, afresh or from its snapshot."""
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
        return plugin_pb2.ConfigureResponse(name=name, version=t.version, outlook=_outlook(t.outlook()), each=True)

    def handle(self, request: plugin_pb2.HandleRequest) -> plugin_pb2.HandleResponse:
        """Hand each event to the tuner."""
        if not request.each:
            return self._answer(request.events)
        response, over = plugin_pb2.HandleResponse(), set[int]()
        for event in request.events:
            # An answer before may have ended its trial: then the tuner hears no more of that.
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
        """Return the tuner's snapshot after the number of trials, which the base class counts."""
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
        raise InvalidError("an event of no known kind; the server is newer than this SDK")

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
            raise TypeError(f"{action!r} is no action: use Create, Train, Pause, End or Clone")
        return m


def spec_of(message: sweep_pb2.SweepSpec) -> Spec:
    """Return a sweep's spec as a tuner sees it."""
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
    """Return the trial that an event is of."""
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
    """Return a trial's seed: evenly spread, and the same for the same sweep's seed and trial."""
    return int.from_bytes(hashlib.sha256(f"{seed}/{trial}".encode()).digest()[:8], "big")


def _json(config: Mapping[str, Any]) -> str:
    """Return a configuration as canonical JSON. Numbers of numpy become Python's own."""
    return json.dumps(_plain(config), sort_keys=True, separators=(",", ":"), allow_nan=False)


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(k): _plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(v) for v in value]
    item = getattr(value, "item", None)
    return item() if callable(item) else value
