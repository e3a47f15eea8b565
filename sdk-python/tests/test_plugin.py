"""Plugins without a server: spaces, settings, the calls of both services, and the program's go-plugin protocol."""

from __future__ import annotations

import importlib.util
import json
import math
import os
import socket
import struct
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import grpc
import pytest
from hypothesis import given
from hypothesis import strategies as st

import outbid as ob
from outbid import plugin
from outbid._search.space import fill_space
from outbid.plugin._bidder import BidderSide
from outbid.plugin._tuner import TunerSide
from outbid.v1 import auction_pb2, plugin_pb2, plugin_pb2_grpc, sweep_pb2

ROOT = Path(__file__).parents[2]
DEADLINE = 30

SPACE = {
    "lr": ob.loguniform(1e-4, 1.0),
    "width": ob.integer(8, 64, step=8),
    "share": ob.quniform(0.1, 0.5, 0.1),
    "layers": ob.integer(1, 100, log=True),
    "optimizer": {
        "kind": ob.choice(["sgd", "adam", 3, True, None]),
        "momentum": ob.when(ob.uniform(0, 1), "optimizer.kind", in_=["sgd", 3]),
    },
    "noise": ob.when({"level": ob.qloguniform(1, 10, 2)}, "width", in_=[8, 16]),
    "fixed": "yes",
}


def space_of(space: dict[str, Any]) -> plugin.Space:
    spec = sweep_pb2.SweepSpec()
    fill_space(spec.space, space)
    return plugin.Space(spec.space)


def sweep(space: dict[str, Any], **settings: Any) -> sweep_pb2.SweepSpec:
    spec = sweep_pb2.SweepSpec(name="test", metric="loss", mode="min")
    fill_space(spec.space, space)
    spec.tuner.seed = 3
    spec.tuner.plugin.max_steps = 6
    spec.tuner.plugin.settings.update(settings)
    return spec


def test_dimensions_come_after_what_they_depend_on() -> None:
    paths = [d.path for d in space_of(SPACE)]
    assert sorted(paths) == [
        "fixed",
        "layers",
        "lr",
        "noise.level",
        "optimizer.kind",
        "optimizer.momentum",
        "share",
        "width",
    ]
    assert paths.index("width") < paths.index("noise.level")
    assert paths.index("optimizer.kind") < paths.index("optimizer.momentum")


def test_values_of_dimensions() -> None:
    space = space_of(SPACE)
    assert [space["width"].nth(k) for k in range(space["width"].count)] == [8, 16, 24, 32, 40, 48, 56, 64]
    assert [space["share"].nth(k) for k in range(space["share"].count)] == [0.1, 0.2, 0.3, 0.4, 0.5]
    assert [space["noise.level"].nth(k) for k in range(space["noise.level"].count)] == [1, 3, 5, 7, 9]
    assert space["lr"].count == 0 and space["lr"].at(0.5) == pytest.approx(1e-2)
    assert space["lr"].at(0) == 1e-4 and space["lr"].at(1) == 1.0
    assert space["layers"].at(0) == 1 and space["layers"].at(1) == 100 and space["layers"].at(0.5) == 7
    assert space["share"].nearest(0.33) == 0.3 and space["share"].nearest(9) == 0.5
    assert type(space["width"].nearest(17.9)) is int
    assert space["optimizer.kind"].nearest(True) is True
    with pytest.raises(ob.InvalidError, match=r"optimizer.kind: 1 is not one of its values"):
        space["optimizer.kind"].nearest(1)


def test_configurations_hold_what_their_conditions_say() -> None:
    space = space_of(SPACE)
    small = space.configuration(lambda d: d.at(0))
    assert small["optimizer"] == {"kind": "sgd", "momentum": 0.0} and small["noise"] == {"level": 1}
    assert small["fixed"] == "yes"
    large = space.at(0.999)
    assert large["optimizer"] == {"kind": None} and "noise" not in large
    assert space.at({d.path: 0.5 for d in space})["optimizer"]["kind"] == 3


@given(st.lists(st.floats(0, 1), min_size=8, max_size=8))
def test_every_share_gives_a_value_of_its_dimension(shares: list[float]) -> None:
    space = space_of(SPACE)
    config = space.at({d.path: share for d, share in zip(space, shares, strict=True)})
    for name in ("lr", "width", "share", "layers"):
        d = space[name]
        assert d.low <= config[name] <= d.high
        assert d.nearest(config[name]) == config[name]


def test_settings() -> None:
    settings = plugin.Settings({"a": 1, "b": "x", "c": 0.5, "d": True, "e": [1]}, "tuner.plugin.settings")
    assert settings.whole("a", least=1) == 1 and settings.text("b") == "x" and settings.number("c") == 0.5
    assert settings.flag("d") and settings.whole("z", 9) == 9
    with pytest.raises(ob.InvalidError, match=r"settings\.e: is not a setting of this plugin; it has a, b, c, d, z"):
        settings.check()
    assert settings.value("e") == [1]
    settings.check()
    for read, problem in (
        (lambda: settings.whole("missing"), "missing: is missing"),
        (lambda: settings.whole("c"), "c: 0.5 is not a whole number"),
        (lambda: settings.whole("d"), "d: True is not a whole number"),
        (lambda: settings.whole("a", least=2), "a: 1 is below 2"),
        (lambda: settings.number("a", least=2, most=3), "a: 1 is outside 2 to 3"),
        (lambda: settings.text("b", choices=["y", "z"]), "b: 'x' is unknown; use y or z"),
        (lambda: settings.flag("a"), "a: 1 is neither true nor false"),
    ):
        with pytest.raises(ob.InvalidError, match=r"tuner\.plugin\.settings\." + problem):
            read()


class Halving(plugin.Tuner):
    """Train two steps, and four if the trial is at least as good as the best one."""

    def start(self) -> None:
        self.state = self.state or {"best": None, "failed": []}

    def ask(self, n: int) -> Iterable[plugin.Create]:
        for _ in range(n):
            yield plugin.Create(self.spec.space.at(self.created / 10), until_step=2, bracket=1)

    def reached(self, report: plugin.Report) -> Iterable[plugin.Action]:
        if report.step < 4 and self.spec.better(report.metric, self.state["best"]):
            self.state["best"] = report.metric
            return [plugin.Train(report.trial, until_step=4, reason="better")]
        return [plugin.End(report.trial, completed=report.step == 4)]

    def exited(self, exit: plugin.Exit) -> Iterable[plugin.Action]:
        self.state["failed"].append(exit.trial)
        return ()


def asked(n: int) -> plugin_pb2.TunerEvent:
    return plugin_pb2.TunerEvent(ask=n)


def reached(trial: int, step: int, metric: float) -> plugin_pb2.TunerEvent:
    return plugin_pb2.TunerEvent(reached=plugin_pb2.TunerReport(trial=trial, step=step, metric=metric))


def started(tuner: plugin.Tuner, spec: sweep_pb2.SweepSpec, snapshot: bytes = b"") -> TunerSide:
    side = TunerSide(tuner)
    side.configure(plugin_pb2.ConfigureRequest(protocol=1, spec=spec, snapshot=snapshot))
    return side


def told(side: TunerSide, *events: plugin_pb2.TunerEvent) -> list[str]:
    response = side.handle(plugin_pb2.HandleRequest(events=events))
    return [" ".join(str(action).split()) for action in response.actions]


def test_a_tuner_goes_on_from_its_snapshot() -> None:
    spec = sweep({"x": ob.uniform(0, 1)})
    side = started(Halving(), spec)
    first = told(side, asked(2))
    assert '"x":0.1' in first[1].replace("\\", "") and "until_step: 2" in first[1] and "bracket: 1" in first[1]
    assert told(side, reached(0, 2, 0.5)) == ['train { until_step: 4 } reason: "better"']
    assert told(side, reached(1, 2, 0.7)) == ["end { trial: 1 state: TRIAL_STATE_STOPPED }"]
    snapshot = side.snapshot(plugin_pb2.SnapshotRequest()).snapshot
    later = [asked(1), reached(2, 2, 0.1), reached(0, 4, 0.4)]
    again = started(Halving(), spec, snapshot)
    assert told(again, *later) == told(side, *later)
    assert again.snapshot(plugin_pb2.SnapshotRequest()) == side.snapshot(plugin_pb2.SnapshotRequest())


def test_several_events_are_answered_one_by_one() -> None:
    spec = sweep({"x": ob.uniform(0, 1)})
    alone, together = started(Halving(), spec), started(Halving(), spec)
    gone = plugin_pb2.TunerEvent(exited=plugin_pb2.TunerExit(trial=1, step=2))
    events = [asked(2), reached(0, 2, 0.5), reached(1, 2, 0.7), gone, asked(1)]
    response = together.handle(plugin_pb2.HandleRequest(events=events, each=True))
    one_by_one = [alone.handle(plugin_pb2.HandleRequest(events=[event])) for event in events if event is not gone]
    assert [*response.each[:3], response.each[4]] == one_by_one
    assert not response.actions and not response.each[3].actions, "the previous answer ended trial 1"
    assert together.snapshot(plugin_pb2.SnapshotRequest()) == alone.snapshot(plugin_pb2.SnapshotRequest())


def test_better() -> None:
    spec = started(Halving(), sweep({"x": ob.uniform(0, 1)}))._tuner.spec
    assert spec.better(1, 2) and not spec.better(2, 1) and not spec.better(1, 1)
    assert spec.better(1, None) and spec.better(1, math.nan)
    assert not spec.better(math.nan, None) and not spec.better(math.nan, 1)


def test_a_tuner_with_wrong_settings_says_so() -> None:
    with pytest.raises(ob.InvalidError, match=r"settings\.eta: is not a setting of this plugin; it has none"):
        started(Halving(), sweep({"x": ob.uniform(0, 1)}, eta=3))
    with pytest.raises(ob.InvalidError, match="protocol 2 is unknown"):
        TunerSide(Halving()).configure(plugin_pb2.ConfigureRequest(protocol=2))


def example(name: str, file: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name.replace("-", "_"), ROOT / "examples" / name / file)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def sphere(config: dict[str, Any]) -> float:
    return sum(((float(config[name]) - 1) ** 2 for name in "abc"), 0.0)


def best_of(sampler: str, seed: int, *, batch: int = 1, stop: int = 0) -> tuple[float, list[str]]:
    """Run the example's tuner on a sphere. With `stop`, restore it from a snapshot once, after that many trials."""
    spec = sweep({name: ob.uniform(-5, 5) for name in "abc"}, sampler=sampler, trials=60)
    spec.tuner.seed = seed
    module = example("optuna-tuner", "tuner.py")
    side, best = started(module.Optuna(), spec), math.inf
    configs: list[str] = []
    while True:
        response = side.handle(plugin_pb2.HandleRequest(events=[asked(batch)]))
        events = []
        for action in response.actions:
            value = sphere(json.loads(action.create.config_json))
            events.append(reached(len(configs), 6, value))
            configs.append(action.create.config_json)
            best = min(best, value)
        if not events:
            assert response.exhausted
            return best, configs
        told(side, *events)
        if len(configs) == stop:
            side = started(module.Optuna(), spec, side.snapshot(plugin_pb2.SnapshotRequest()).snapshot)


@pytest.fixture
def quiet_optuna() -> Iterator[None]:
    optuna = pytest.importorskip("optuna")
    pytest.importorskip("cmaes")
    before = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    yield
    optuna.logging.set_verbosity(before)


@pytest.mark.usefixtures("quiet_optuna")
@pytest.mark.filterwarnings("ignore:.*experimental feature")
def test_optunas_samplers_beat_chance() -> None:
    at_random = [best_of("random", seed)[0] for seed in range(3)]
    for sampler in ("tpe", "cmaes"):
        found = [best_of(sampler, seed)[0] for seed in range(3)]
        assert all(a < b for a, b in zip(found, at_random, strict=True)), (sampler, found, at_random)


@pytest.mark.usefixtures("quiet_optuna")
@pytest.mark.filterwarnings("ignore:.*experimental feature")
@pytest.mark.parametrize("sampler", ["random", "tpe", "cmaes"])
def test_optunas_samplers_go_on_from_a_snapshot(sampler: str) -> None:
    assert best_of(sampler, 5, batch=4, stop=32) == best_of(sampler, 5, batch=4)


@pytest.mark.usefixtures("quiet_optuna")
@pytest.mark.filterwarnings("ignore:.*experimental feature")
def test_optuna_draws_from_every_kind_of_parameter() -> None:
    spec = sweep(SPACE, trials=40, startup=5)
    side = started(example("optuna-tuner", "tuner.py").Optuna(), spec)
    space = plugin.Space(spec.space)
    kinds = set()
    for trial in range(40):
        (action,) = side.handle(plugin_pb2.HandleRequest(events=[asked(1)])).actions
        config = json.loads(action.create.config_json)
        kinds.add(config["optimizer"]["kind"])
        assert ("momentum" in config["optimizer"]) == (config["optimizer"]["kind"] in ("sgd", 3))
        assert ("noise" in config) == (config["width"] in (8, 16))
        assert space["lr"].nearest(config["lr"]) == config["lr"]
        told(side, reached(trial, 6, config["lr"] if trial % 7 else math.nan))
    assert len(kinds) > 2


@pytest.mark.usefixtures("quiet_optuna")
def test_what_optuna_cannot_do_is_said() -> None:
    module = example("optuna-tuner", "tuner.py")
    spec = sweep({"x": ob.uniform(0, 1)}, sampler="magic")
    with pytest.raises(
        ob.InvalidError, match=r"settings\.sampler: 'magic' is unknown; use cmaes or gp or random or tpe"
    ):
        started(module.Optuna(), spec)
    spec = sweep({"x": ob.uniform(0, 1)})
    spec.constraints.append("x < 0.5")
    with pytest.raises(ob.InvalidError, match="constraints: Optuna's samplers do not know them"):
        started(module.Optuna(), spec)
    if importlib.util.find_spec("torch") is None:
        with pytest.raises(ob.InvalidError, match=r"sampler: gp needs torch: pip install 'outbid\[optuna,torch\]'"):
            started(module.Optuna(), sweep({"x": ob.uniform(0, 1)}, sampler="gp"))


@pytest.mark.usefixtures("quiet_optuna")
@pytest.mark.filterwarnings("ignore:.*experimental feature")
def test_optunas_process_beats_chance() -> None:
    pytest.importorskip("torch")
    assert best_of("gp", 0)[0] < best_of("random", 0)[0]


def bid_request(**settings: Any) -> plugin_pb2.BidRequest:
    request = plugin_pb2.BidRequest(round=3)
    request.lots.add(node="n1", type="v100", free=4, slots=[2, 2])
    request.lots.add(node="n2", rack="r", type="k80", free=2)
    request.cluster.add(type="v100", devices=8)
    s = request.apps.add(sweep="digits-1", elapsed_seconds=60, mean_apps=2, speeds_index=0, free=[4, 0])
    s.settings.update(settings)
    table = s.speeds.add(slowdown=[0, 0, 2, 0])
    table.measured.add(type="v100", devices=2, spread=1, rate=10)
    table.measured.add(type="k80", devices=1, spread=1, rate=1)
    s.jobs.add(trial=4, done=10, until=30, total=90, min_devices=1, max_devices=4, speeds_index=0)
    s.jobs[0].held.CopyFrom(plugin_pb2.Holding(type="v100", devices=2, machines=1, rate=10))
    s.own.rho, s.own.ideal_seconds = 3, 100
    for rho, kind, devices in ((2, "v100", 1), (1, "v100", 2), (0.9, "v100", 4), (0.8, "k80", 2)):
        gangs = [auction_pb2.Gangs(count=1, machines=1, devices=devices, type=kind)]
        s.own.rows.add(rho=rho, gangs=gangs)
    return request


class Watching(plugin.Bidder):
    name = "watching"

    def bid(self, offer: plugin.Offer, app: plugin.AppState) -> plugin.Bid | plugin.NoBid:
        self.offer, self.seen = offer, app
        if app.settings.flag("idle", False):
            return plugin.NoBid("no need")
        return plugin.Bid(2.5, 100, (plugin.Row(1.5, (plugin.Gangs("v100", 2, count=2),)),))


def test_a_bidder_sees_the_app_state() -> None:
    bidder = Watching()
    side = BidderSide(bidder)
    assert side.handshake(plugin_pb2.HandshakeRequest(protocol=1)).name == "watching"
    with pytest.raises(ob.InvalidError, match="protocol 7 is unknown"):
        side.handshake(plugin_pb2.HandshakeRequest(protocol=7))
    (table,) = side.bid(bid_request()).tables
    assert (table.rho, table.ideal_seconds, table.rows[0].gangs[0].count, table.refused) == (2.5, 100, 2, "")
    assert bidder.offer.round == 3 and bidder.offer.cluster == {"v100": 8} and len(bidder.offer.lots) == 2
    assert [lot.type for lot in bidder.seen.lots] == ["v100"]
    (job,) = bidder.seen.jobs
    assert job.left == 80 and job.held == plugin.Holding("v100", 2, 1, 10) and job.lost is None
    assert job.speeds.rate("v100", 2) == 10 and job.speeds.rate("v100", 4, "rack") == 10
    assert job.speeds.rate("k80") == 1 and job.speeds.rate("tpu") == 5
    assert bidder.seen.rho(40) == 1.0
    assert bidder.seen.own.rows[2].size == 4


def test_a_bidder_may_want_nothing() -> None:
    side = BidderSide(Watching())
    assert side.bid(bid_request(idle=True)).tables[0].refused == "no need"
    assert side.bid(bid_request(idle=3)).tables[0].refused == "agent.settings.idle: 3 is neither true nor false"
    assert "agent.settings.other: is not a setting" in side.bid(bid_request(other=1)).tables[0].refused


def test_the_frugal_bidder() -> None:
    side = BidderSide(example("own-bidder", "bidder.py").Frugal())

    def sizes(**settings: Any) -> list[int]:
        (table,) = side.bid(bid_request(**settings)).tables
        assert not table.refused, table.refused
        return [sum(g.devices for g in row.gangs) for row in table.rows]

    assert sizes(minutes=4) == [1], "200 s are less than 4 minutes"
    assert sizes(minutes=2) == [2], "100 s are less than 2 minutes"
    assert sizes(minutes=1) == [1, 2, 4, 2], "nothing will do"
    assert sizes(minutes=1, types=["v100"]) == [1, 2, 4]
    (table,) = side.bid(bid_request(minutes=5)).tables
    assert table.refused == "it will be done in 300 s with what it has"


PROGRAM = """
import os, sys
from outbid import plugin
class T(plugin.Tuner):
    def start(self):
        print("hello to the log")
        self.spec.settings.whole("trials", 1)
    def ask(self, n):
        if n == 7:
            raise KeyError("lr")
        return ()
    def reached(self, report):
        return ()
if __name__ == "__main__":
    plugin.serve(T())
"""


@pytest.fixture
def program(tmp_path: Path) -> Path:
    path = tmp_path / "tuner.py"
    path.write_text(PROGRAM)
    return path


def launch(program: Path, descriptor: int | None = None, **env: str) -> subprocess.Popen[str]:
    own = {"PYTHONPATH": str(ROOT / "sdk-python" / "src"), "PLUGIN_UNIX_SOCKET_DIR": str(program.parent)}
    return subprocess.Popen(
        [sys.executable, str(program)],
        env={**os.environ, **own, **env},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        pass_fds=() if descriptor is None else (descriptor,),
    )


def channel_to(process: subprocess.Popen[str]) -> grpc.Channel:
    assert process.stdout
    core, version, network, address, protocol = process.stdout.readline().strip().split("|")
    assert (core, version, protocol) == ("1", "1", "grpc")
    return grpc.insecure_channel(f"unix:{address}" if network == "unix" else address)


def call(channel: grpc.Channel, method: str) -> bytes:
    """Call a method of go-plugin's own services, whose messages have at most one field."""
    raw = channel.unary_unary(method, lambda b: b, lambda b: b)
    answer: bytes = raw(b"", timeout=DEADLINE)
    return answer


def test_a_program_as_go_plugin_meets_it(program: Path) -> None:
    ours, theirs = os.pipe()
    with launch(program, ours, OUTBID_PLUGIN="tuner", OUTBID_PLUGIN_LIFELINE=str(ours)) as process:
        os.close(ours)
        with channel_to(process) as channel:
            assert call(channel, "/grpc.health.v1.Health/Check") == b"\x08\x01"
            stdio = channel.unary_stream("/plugin.GRPCStdio/StreamStdio", lambda b: b, lambda b: b)
            assert list(stdio(b"", timeout=DEADLINE)) == []
            stub = plugin_pb2_grpc.TunerServiceStub(channel)
            request = plugin_pb2.ConfigureRequest(protocol=1, spec=sweep({"x": ob.uniform(0, 1)}))
            assert stub.Configure(request, timeout=DEADLINE).name == "T"
            request.spec.tuner.plugin.settings.update({"trials": "many"})
            with pytest.raises(grpc.RpcError) as wrong:
                stub.Configure(request, timeout=DEADLINE)
            assert wrong.value.code() == grpc.StatusCode.INVALID_ARGUMENT
            assert wrong.value.details() == "tuner.plugin.settings.trials: 'many' is not a whole number"
            with pytest.raises(grpc.RpcError) as raised:
                stub.Handle(plugin_pb2.HandleRequest(events=[asked(7)]), timeout=DEADLINE)
            assert raised.value.code() == grpc.StatusCode.INTERNAL
            assert raised.value.details() == "KeyError: 'lr'"
        # A killed server only closes its file descriptors.
        os.close(theirs)
        assert process.wait(DEADLINE) == 0
        assert process.stderr
        said = process.stderr.read()
    assert said.count("hello to the log") == 2 and 'raise KeyError("lr")' in said


def exchange(server: socket.socket, request: plugin_pb2.HandleRequest) -> tuple[int, bytes]:
    """Send a request on a program's channel; return the status code and the answer."""
    server.sendall(struct.pack(">I", request.ByteSize()) + request.SerializeToString())
    with server.makefile("rb") as answers:
        code, size = struct.unpack(">BI", answers.read(5))
        return code, answers.read(size)


def test_a_program_answers_on_its_channel(program: Path) -> None:
    server, its = socket.socketpair()
    with (
        server,
        launch(program, its.fileno(), OUTBID_PLUGIN="tuner", OUTBID_PLUGIN_CHANNEL=str(its.fileno())) as process,
    ):
        its.close()
        server.settimeout(DEADLINE)
        with channel_to(process) as channel:
            stub = plugin_pb2_grpc.TunerServiceStub(channel)
            request = plugin_pb2.ConfigureRequest(protocol=1, spec=sweep({"x": ob.uniform(0, 1)}))
            assert stub.Configure(request, timeout=DEADLINE).channel
            code, answer = exchange(server, plugin_pb2.HandleRequest(events=[asked(1), asked(2)], each=True))
            assert code == 0 and len(plugin_pb2.HandleResponse.FromString(answer).each) == 2
            assert exchange(server, plugin_pb2.HandleRequest(events=[asked(7)])) == (13, b"KeyError: 'lr'")
            code, answer = exchange(server, plugin_pb2.HandleRequest(events=[plugin_pb2.TunerEvent()]))
            assert code == 3 and b"unknown kind of event" in answer
            server.shutdown(socket.SHUT_WR)
            assert server.recv(1) == b"", "it has closed its end"
            assert call(channel, "/plugin.GRPCController/Shutdown") == b""
        assert process.wait(DEADLINE) == 0


def test_a_program_ends_when_asked(program: Path) -> None:
    with launch(program, OUTBID_PLUGIN="tuner") as process:
        with channel_to(process) as channel:
            assert call(channel, "/plugin.GRPCController/Shutdown") == b""
        assert process.wait(DEADLINE) == 0


@pytest.mark.parametrize(
    ("env", "problem"),
    [
        ({}, "which a server must start; configure it with tuner: {plugin: {command: [...]}} of a sweep"),
        ({"OUTBID_PLUGIN": "agent"}, "with a tuner, but was started as a bidder"),
    ],
)
def test_a_program_is_not_started_by_hand(program: Path, env: dict[str, str], problem: str) -> None:
    with launch(program, None, **env) as process:
        out, said = process.communicate(timeout=DEADLINE)
    assert process.returncode == 1 and out == ""
    assert problem in said and said.count("\n") == 1


def test_all_names_are_there_and_documented() -> None:
    for name in plugin.__all__:
        value = getattr(plugin, name)
        assert name in ("Action", "MAX_ROWS") or value.__doc__, f"{name} has no docstring"


def test_the_reference_names_everything() -> None:
    text = (ROOT / "docs" / "reference" / "sdk" / "plugin.md").read_text()
    assert not [
        name for name in plugin.__all__ if isinstance(getattr(plugin, name), type) and f"\n## {name}\n" not in text
    ]


def test_importing_plugins_is_light() -> None:
    code = "import sys; from outbid import plugin; print(*sys.modules)"
    path = {"PYTHONPATH": str(ROOT / "sdk-python" / "src")}
    done = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, **path}, capture_output=True, text=True, check=True, timeout=60
    )
    assert not set(done.stdout.split()) & {"grpc", "numpy", "torch", "optuna", "rich"}


def test_a_sweep_chooses_its_bidder() -> None:
    def chosen(**words: Any) -> Any:
        return ob.Sweep(space={"x": ob.uniform(0, 1)}, metric="loss", mode="min", **words).to_dict().get("agent")

    assert chosen(bidder="frugal", bidder_settings={"minutes": 3}) == {"plugin": "frugal", "settings": {"minutes": 3.0}}
    assert chosen(bidder="frugal")["plugin"] == "frugal"
    assert chosen() is None
    with pytest.raises(ValueError, match="bidder_settings: also set bidder"):
        chosen(bidder_settings={"minutes": 3})


def test_bidders_by_their_deprecated_name() -> None:
    words: dict[str, Any] = {"space": {"x": ob.uniform(0, 1)}, "metric": "loss", "mode": "min", "agent": "frugal"}
    with pytest.warns(DeprecationWarning, match="agent is deprecated; write bidder"):
        assert ob.Sweep(**words).to_dict()["agent"]["plugin"] == "frugal"
    with pytest.raises(TypeError, match="agent is the deprecated name of bidder; give only bidder"):
        ob.Sweep(bidder="other", **words)
    with pytest.warns(DeprecationWarning, match="write Bidder"):
        assert plugin.Agent is plugin.Bidder
    with pytest.raises(AttributeError, match="no attribute 'Agents'"):
        _ = plugin.Agents
