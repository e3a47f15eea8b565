"""The client against a fake server."""

from __future__ import annotations

import asyncio
import datetime
import hashlib
import pickle
import time
import warnings
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
from safetensors.numpy import save

import outbid as ob
from fake_server import TRAINED, FakeServer, make_report, make_trial
from outbid import rpc
from outbid._core import function_pickle
from outbid.rpc import _transport
from outbid.v1 import event_pb2
from outbid.v1 import service_pb2 as pb


def train(trial: ob.Trial) -> None:
    trial.report(accuracy=1.0)


def make_sweep(**changes: Any) -> ob.Sweep:
    space = {"lr": ob.uniform(0, 1), "units": ob.integer(1, 9)}
    return ob.Sweep(train, space, **{"metric": "accuracy", "mode": "max", **changes})


@pytest.fixture
def handle(client: ob.Client) -> ob.SweepHandle:
    return make_sweep().submit()


def set_best(server: FakeServer, trial: pb.Trial) -> None:
    server.sweep.best.CopyFrom(trial)


def test_submit_sends_function_and_spec(server: FakeServer, client: ob.Client) -> None:
    handle = make_sweep(name="digits", env={"A": "1"}).submit()
    assert handle.id == "s-1"
    request = server.last(pb.SubmitSweepRequest)
    assert request.idempotency_key
    assert request.spec.name == "digits"
    function = request.spec.function
    assert (function.name, dict(function.env)) == ("train", {"A": "1"})
    assert function.python.endswith("python") or "python" in function.python
    assert function.workdir == str(Path.cwd()), "a server on this machine runs it where this program runs"
    assert callable(function_pickle.load(server.blobs[function.blob]))


def test_the_server_chooses_the_tuner_of_a_sweep_that_names_none(server: FakeServer, client: ob.Client) -> None:
    def sent(**arguments: Any) -> Any:
        make_sweep(points=[{"lr": 0.5}], **arguments).submit()
        return server.last(pb.SubmitSweepRequest).spec.tuner

    two = {"metric": ["accuracy", "size"], "mode": ["max", "min"]}
    for one in ({"trials": 10}, {"trials": 10_000}, {"wall_time": "1h"}, {"trials": 100, **two}):
        tuner = sent(**one)
        assert tuner.WhichOneof("kind") is None and tuner.points[0]["lr"] == 0.5
    assert sent(trials=100, tuner=ob.Random()).WhichOneof("kind") == "random"


def test_run_returns_the_result(server: FakeServer, client: ob.Client, capsys: pytest.CaptureFixture[str]) -> None:
    best = make_trial(1, best=0.75, best_step=3, step=3)
    set_best(server, best)
    server.tell_news(make_trial(0, "running", until_step=3), reports=[])
    server.tell_news(make_trial(0, best=0.5), best, make_trial(2, "failed", reason="ValueError: no"), ended=True)
    result = make_sweep().run()
    assert len(result.trials) == 3
    assert result.best.config == {"lr": 1.5, "units": 1}
    assert type(result.best.config["units"]) is int
    assert (result.best.metric, result.best.best_step, result.best.number) == (0.75, 3, 1)
    out = capsys.readouterr().out
    assert "s-1: done after 0s\n" in out
    assert out.endswith("s-1: best accuracy 0.75 (trial 1 at step 3): {'lr': 1.5, 'units': 1}\n")
    assert "\x1b" not in out, "no escape codes where there is no terminal"


def test_wait_timeout(server: FakeServer, handle: ob.SweepHandle) -> None:
    server.tell_news(make_trial(0, "running"))
    with pytest.raises(TimeoutError, match=r"s-1 has not ended within 0\.2 s.*ob\.attach\('s-1'\)"):
        handle.wait(0.2)


def test_failed_sweep(server: FakeServer, handle: ob.SweepHandle) -> None:
    server.sweep.state = event_pb2.SWEEP_STATE_FAILED
    server.sweep.reason = "every trial failed"
    server.tell_news()
    server.news.put(None)
    with pytest.raises(ob.SweepFailedError, match="sweep s-1 failed: every trial failed") as caught:
        handle.wait()
    assert caught.value.sweep_id == "s-1"


def test_wait_outlives_a_restart_of_the_server(server: FakeServer, handle: ob.SweepHandle) -> None:
    first = [make_report(0, 1, accuracy=0.1), make_report(0, 2, accuracy=0.2)]
    server.tell_news(make_trial(0, "running"), reports=first)
    server.news.put(grpc.StatusCode.UNAVAILABLE)
    # A new stream repeats everything.
    server.tell_news(make_trial(0), reports=[*first, make_report(0, 3, accuracy=0.3)], ended=True)
    steps: list[int] = []

    class Watcher(ob.Callback):
        def on_report(self, trial: ob.TrialResult, report: ob.Report) -> None:
            steps.append(report.step)

    handle.wait(callbacks=[Watcher()])
    assert steps == [1, 2, 3], "each report once"


def test_a_stream_that_ends_early_is_taken_up_again(server: FakeServer, handle: ob.SweepHandle) -> None:
    server.tell_news(make_trial(0, "running"))
    server.news.put(None)
    server.tell_news(make_trial(0), ended=True)
    assert handle.wait().sweep.state == "done"


def test_callbacks(server: FakeServer, handle: ob.SweepHandle) -> None:
    server.tell_news(make_trial(0, "running"), reports=[make_report(1, 1, accuracy=0.5)])
    server.tell_news(make_trial(1), reports=[make_report(0, 1, accuracy=0.25)])
    server.tell_news(make_trial(0), make_trial(1), ended=True)
    calls: list[Any] = []

    class Recorder(ob.Callback):
        def on_report(self, trial: ob.TrialResult, report: ob.Report) -> None:
            calls.append(("report", trial.number, report.metrics["accuracy"]))

        def on_trial_end(self, trial: ob.TrialResult) -> None:
            calls.append(("end", trial.number, trial.state))

        def on_sweep_end(self, result: ob.Result) -> None:
            calls.append(("sweep", len(result.trials), result.sweep.state))

    handle.wait(callbacks=[Recorder()])
    assert server.last(pb.WatchSweepRequest).reports
    assert calls == [
        ("report", 1, 0.5),
        ("report", 0, 0.25),
        ("end", 1, "completed"),
        ("end", 0, "completed"),
        ("sweep", 2, "done"),
    ]
    with pytest.raises(TypeError, match=r"callbacks must be outbid\.Callback objects"):
        handle.wait(callbacks=[print])  # type: ignore[list-item]


def test_what_a_callback_raises_ends_the_waiting(server: FakeServer, handle: ob.SweepHandle) -> None:
    class Angry(ob.Callback):
        def on_trial_end(self, trial: ob.TrialResult) -> None:
            raise RuntimeError("enough")

    server.tell_news(make_trial(0))
    with pytest.raises(RuntimeError, match="enough"):
        handle.wait(callbacks=[Angry()])


def test_watch(server: FakeServer, handle: ob.SweepHandle) -> None:
    server.tell_news(make_trial(0, "running", step=1))
    server.tell_news(make_trial(0, step=2), reports=[make_report(0, 2, accuracy=1)], ended=True)
    first, second = handle.watch(reports=True)
    assert (first.trials[0].state, first.trials[0].step) == ("running", 1)
    assert second.reports[0].metrics == {"accuracy": 1}
    assert second.sweep.over


def test_leaving_a_watch_ends_the_call(server: FakeServer, handle: ob.SweepHandle) -> None:
    server.tell_news(make_trial(0, "running"))
    for _ in handle.watch():
        break
    server.tell_news(make_trial(0), ended=True)


def test_control_and_extend(server: FakeServer, handle: ob.SweepHandle) -> None:
    for action, command in [("pause", 1), ("resume", 2), ("stop", 3)]:
        getattr(handle, action)()
        assert server.last(pb.ControlSweepRequest).command == command
    handle.extend(trials=50, max_steps=81, space={"lr": ob.uniform(0, 2)}, limits=ob.Limits(wall_time="2h"), weight=2)
    request = server.last(pb.ExtendSweepRequest)
    assert (request.trials, request.max_steps, request.limits.wall_time, request.weight) == (50, 81, "2h", 2)
    assert request.space["lr"].float.high == 2
    handle.extend(trials=60)
    assert not server.last(pb.ExtendSweepRequest).HasField("max_steps")
    assert not server.last(pb.ExtendSweepRequest).HasField("weight")
    for weight in (0, -1, float("nan"), True, "2"):
        with pytest.raises((TypeError, ValueError), match="weight must be"):
            handle.extend(weight=weight)  # type: ignore[arg-type]


def test_delete(server: FakeServer, handle: ob.SweepHandle) -> None:
    handle.delete()
    assert server.last(pb.DeleteSweepRequest) == pb.DeleteSweepRequest(sweep=handle.id)
    handle.delete(force=True)
    assert server.last(pb.DeleteSweepRequest).force


def test_trials_come_in_pages(server: FakeServer, handle: ob.SweepHandle) -> None:
    for number in range(5):
        server.trials[number] = make_trial(number)
    assert [trial.number for trial in handle.trials()] == [0, 1, 2, 3, 4]


def test_logs(handle: ob.SweepHandle) -> None:
    assert [(line.trial, line.stream, line.line) for line in handle.logs()] == [
        (0, "stdout", "hello"),
        (1, "stderr", "trouble"),
    ]


def test_checkpoint_of_a_trial(server: FakeServer, handle: ob.SweepHandle, tmp_path: Path) -> None:
    server.trials[0] = make_trial(0)
    trial = handle.trials()[0]
    path = trial.download(tmp_path / "new" / "c.bin")
    assert path.read_bytes() == TRAINED
    server.checkpoint = save({"w": np.arange(3)}, metadata={"outbid.metadata": '{"epoch": 3}'})
    server.sha256 = hashlib.sha256(server.checkpoint).hexdigest()
    np.testing.assert_array_equal(trial.checkpoint()["w"], np.arange(3))
    assert trial.metadata() == {"epoch": 3}
    with pytest.raises(ob.NotFoundError, match="no checkpoint of step 99"):
        trial.checkpoint(99)


def test_damaged_checkpoint_leaves_no_file(server: FakeServer, handle: ob.SweepHandle, tmp_path: Path) -> None:
    server.trials[0] = make_trial(0)
    server.sha256 = "0" * 64
    with pytest.raises(ob.CheckpointError, match="is damaged"):
        handle.trials()[0].download(tmp_path / "c.bin")
    assert list(tmp_path.iterdir()) == []


def test_ask_and_tell(server: FakeServer, client: ob.Client) -> None:
    sweep = ob.Sweep(space={"lr": ob.uniform(0, 1)}, metric="loss", mode="min", tuner=ob.Hyperband(9))
    server.asks.put(pb.AskTrialResponse())  # none at present
    trial = make_trial(0, "running", until_step=1)
    server.asks.put(pb.AskTrialResponse(trial=trial, lease_id=7))
    asked = sweep.ask()
    assert asked is not None
    assert server.sweep.spec.HasField("external")
    assert (asked.config, asked.step, asked.until_step, asked.id) == ({"lr": 0.5, "units": 0}, 0, 1, "s-1/0")
    trial.until_step = 3
    server.tells.put(pb.TellTrialResponse(trial=trial, go_on=True))
    assert sweep.tell(asked, 0.5)
    request = server.last(pb.TellTrialRequest)
    assert (request.lease_id, request.finished) == (7, True)
    report = request.reports[0]
    assert (report.seq, report.step, dict(report.metrics)) == (1, 1, {"loss": 0.5})
    assert (asked.step, asked.until_step) == (1, 3)
    server.tells.put(pb.TellTrialResponse(trial=trial, go_on=True))
    sweep.tell(asked, {"loss": 0.4, "extra": 1}, step=2)
    request = server.last(pb.TellTrialRequest)
    assert not request.finished
    assert request.reports[0].seq == 2
    server.tells.put(pb.TellTrialResponse(trial=trial))
    assert not sweep.tell(asked, error="out of memory")
    assert server.last(pb.TellTrialRequest).error == "out of memory"
    with pytest.raises(TypeError, match="tell: metric 'loss' must be one number"):
        sweep.tell(asked, "low")  # type: ignore[arg-type]
    server.asks.put(pb.AskTrialResponse(exhausted=True))
    assert sweep.ask() is None
    server.asks.put(pb.AskTrialResponse())
    with pytest.raises(TimeoutError, match="had no trial to train"):
        sweep.ask(timeout=0)
    with pytest.raises(TypeError, match="neither function nor program"):
        sweep.run()
    with pytest.raises(TypeError, match="which the workers run"):
        make_sweep().ask()


def test_async(server: FakeServer, client: ob.Client) -> None:
    async def go() -> ob.Result:
        handle = await make_sweep().asubmit()
        server.tell_news(make_trial(0), ended=True)
        return await handle.wait_async()

    assert asyncio.run(go()).sweep.state == "done"


def test_async_cancel(server: FakeServer, client: ob.Client) -> None:
    async def go() -> None:
        handle = await make_sweep().asubmit()
        server.tell_news(make_trial(0, "running"))
        task = asyncio.create_task(handle.wait_async())
        await asyncio.sleep(0)
        while not any(isinstance(r, pb.WatchSweepRequest) for r in server.requests):
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(go())  # waits for the thread if cancelling does not end it


def test_preview(client: ob.Client) -> None:
    preview = make_sweep().preview(step_seconds=2)
    assert (preview.trials, preview.steps, preview.device_hours) == (9, 27, 2)
    assert preview.rungs == (ob.Rung(0, 1, 9, 9),)
    assert preview.examples == ({"layers": 3, "lr": 0.5, "sizes": [1, {"b": 2}]},)
    assert repr(preview.examples[0]) == "{'layers': 3, 'lr': 0.5, 'sizes': [1, {'b': 2}]}", "whole numbers are ints"
    assert preview.warnings == ("no node has a v100",)


def test_attach_and_list(client: ob.Client) -> None:
    assert ob.attach("s-1").info().state == "running"
    assert [sweep.id for sweep in client.sweeps()] == ["s-1"]
    assert client.server()["version"] == "1.2.3"
    with pytest.raises(
        ob.NotFoundError, match=r"no sweep 's-2' on the server at http://.*, which has s-1; for another"
    ):
        ob.attach("s-2")


def test_attach_by_name(handle: ob.SweepHandle) -> None:
    assert ob.attach("train").id == "s-1"


def test_attach_without_a_server_says_where_it_looked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ob.NotFoundError, match=rf"looked in {tmp_path}/\.outbid, which does not exist; .*connect"):
        ob.attach("digits-1")
    assert list(tmp_path.iterdir()) == [], "no server was started to find that out"


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (grpc.StatusCode.INVALID_ARGUMENT, ob.InvalidError),
        (grpc.StatusCode.FAILED_PRECONDITION, ob.ConflictError),
        (grpc.StatusCode.INTERNAL, ob.ServerError),
        (grpc.StatusCode.RESOURCE_EXHAUSTED, ob.LimitError),
        (grpc.StatusCode.DEADLINE_EXCEEDED, TimeoutError),
        (grpc.StatusCode.PERMISSION_DENIED, ob.UnauthenticatedError),
    ],
)
def test_errors(server: FakeServer, client: ob.Client, code: grpc.StatusCode, kind: type[Exception]) -> None:
    server.fail = [(code, "space.lr.low: 2 is above high")]
    with pytest.raises(kind) as caught:
        client.sweeps()
    if kind is not TimeoutError:
        assert "space.lr.low: 2 is above high" in str(caught.value)


def test_calls_outlive_a_restart_of_the_server(server: FakeServer, client: ob.Client) -> None:
    server.fail = [(grpc.StatusCode.UNAVAILABLE, "going down")] * 2
    assert len(client.sweeps()) == 1


def test_a_limit_that_time_frees_is_waited_for(server: FakeServer, client: ob.Client) -> None:
    server.fail = [(grpc.StatusCode.RESOURCE_EXHAUSTED, "report_rate: too fast")] * 2
    server.retry_after_ms = [20, 30]
    assert len(client.sweeps()) == 1
    assert not server.fail


def test_a_limit_that_takes_too_long_says_when(server: FakeServer, client: ob.Client) -> None:
    server.fail = [(grpc.StatusCode.RESOURCE_EXHAUSTED, "report_rate: too fast")]
    server.retry_after_ms = [3_600_000]
    with pytest.raises(ob.LimitError, match="report_rate: too fast") as caught:
        client.sweeps()
    assert pickle.loads(pickle.dumps(caught.value)).retry_after == 3600


def test_patience_has_an_end(server: FakeServer, client: ob.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rpc.Patience, "more", lambda self: False)
    server.fail = [(grpc.StatusCode.UNAVAILABLE, "going down")]
    with pytest.raises(ob.UnavailableError, match="going down"):
        client.sweeps()


def test_no_server_is_said_at_once() -> None:
    began = time.monotonic()
    with pytest.raises(ob.UnavailableError, match=r"cannot reach the server at http://127\.0\.0\.1:1: "):
        ob.connect("http://127.0.0.1:1")
    assert time.monotonic() - began < 20


def test_token() -> None:
    server = FakeServer(token="secret")
    try:
        with pytest.raises(ob.UnauthenticatedError, match="the token is wrong; give a token with"):
            ob.connect(server.url)
        with ob.connect(server.url, token="secret") as client:
            said = client.server()
            assert (said["policy"], said["policy_options"]) == ("themis", "lease=10m0s seed=1")
    finally:
        server.close()


def test_environment_names_the_server(monkeypatch: pytest.MonkeyPatch) -> None:
    server = FakeServer(token="secret")
    monkeypatch.setenv("OUTBID_URL", f"grpc://127.0.0.1:{server.port}")
    monkeypatch.setenv("OUTBID_TOKEN", "secret")
    try:
        with ob.connect() as client:
            assert client.url.startswith("grpc://")
            assert ob.attach("s-1").id == "s-1"
    finally:
        server.close()


@pytest.mark.parametrize(
    ("url", "want"),
    [
        ("127.0.0.1:7070", (False, "127.0.0.1:7070")),
        ("http://host:1", (False, "host:1")),
        ("grpc://host", (False, "host:80")),
        ("https://host", (True, "host:443")),
        ("grpcs://[::1]:9", (True, "[::1]:9")),
    ],
)
def test_urls(url: str, want: tuple[bool, str]) -> None:
    assert _transport._parse(url) == want


@pytest.mark.parametrize(
    "url", ["ftp://host:1", "http://", "http://host:x", "http://host:1/path", "http://[::1", "[red] no url"]
)
def test_bad_urls(url: str) -> None:
    with pytest.raises(ValueError, match="is not a server's URL: write http://host:port"):
        ob.connect(url)


def test_a_trial_is_explained(server: FakeServer, handle: ob.SweepHandle) -> None:
    assert handle.explain(3) == "It waits.\nIt lost nothing.\nNo policy differs."
    request = server.last(pb.ExplainSweepRequest)
    assert (request.sweep, request.trial, request.simulate) == (handle.id, 3, True)


def test_one_trial_is_stopped(server: FakeServer, handle: ob.SweepHandle) -> None:
    handle.stop_trial(3, reason="it diverges")
    request = server.last(pb.ControlTrialRequest)
    assert (request.sweep, request.trial, request.reason) == (handle.id, 3, "it diverges")
    assert request.command == pb.TRIAL_COMMAND_STOP


def test_a_failed_trial_is_retried(server: FakeServer, handle: ob.SweepHandle) -> None:
    handle.retry_trial(3, reason="the disk was full")
    request = server.last(pb.ControlTrialRequest)
    assert (request.sweep, request.trial, request.reason) == (handle.id, 3, "the disk was full")
    assert request.command == pb.TRIAL_COMMAND_RETRY


def test_what_if(server: FakeServer, client: ob.Client) -> None:
    at = datetime.datetime(2026, 11, 1, tzinfo=datetime.timezone.utc)
    runs = client.what_if("las", "drf", sweep="s-1", weight=2, since=at)
    assert [run.policy for run in runs] == ["", "las", "drf"]
    assert (runs[0].sweeps[0].sweep, runs[0].sweeps[0].seconds, runs[0].sweeps[0].rho) == ("s-1", 9, None)
    request = server.last(pb.SimulateLedgerRequest)
    assert (list(request.policies), request.sweep, request.weight) == (["las", "drf"], "s-1", 2)
    assert request.since.ToDatetime(datetime.timezone.utc) == at and not request.HasField("until")
    with pytest.raises(ValueError, match="what_if: policies must name a policy"):
        client.what_if()
    with pytest.raises(ValueError, match="what_if: sweep and weight must be given together"):
        client.what_if("las", weight=2)
    with pytest.raises(ValueError, match="what_if: weight must be a number above 0, got -1"):
        client.what_if(sweep="s-1", weight=-1)


def test_a_sweep_is_annotated(server: FakeServer, handle: ob.SweepHandle) -> None:
    handle.annotate("the baseline", add_tags=["old", "good"], remove_tags=("draft",))
    request = server.last(pb.AnnotateSweepRequest)
    assert (request.sweep, request.description) == (handle.id, "the baseline")
    assert (list(request.add_tags), list(request.remove_tags)) == (["old", "good"], ["draft"])
    handle.annotate(add_tags=["best"])
    assert not server.last(pb.AnnotateSweepRequest).HasField("description")
    with pytest.raises(TypeError, match=r"annotate: add_tags must be a list of tags, got 'best'"):
        handle.annotate(add_tags="best")
    with pytest.raises(TypeError, match=r"annotate: description must be text, got 3"):
        handle.annotate(3)  # type: ignore[arg-type]


def test_the_annotation_is_read(server: FakeServer, handle: ob.SweepHandle) -> None:
    assert (handle.info().description, handle.info().tags) == ("", ())
    server.sweep.annotation.description = "the baseline"
    server.sweep.annotation.tags.extend(["best", "good"])
    assert (handle.info().description, handle.info().tags) == ("the baseline", ("best", "good"))


def test_extend_warns_of_what_is_trained_again(server: FakeServer, handle: ob.SweepHandle) -> None:
    server.trained_again = [pb.TrainedAgain(trial=n, from_step=n % 2, step=5) for n in range(12)]
    again = handle.extend(max_steps=9, preview=True)
    assert server.last(pb.ExtendSweepRequest).preview
    assert again[1] == ob.TrainedAgain(1, 1, 5)
    said = r"12 trials of \S+ repeat 54 steps because .*\(trials 0, 1, .*, 9, \.\.\.\)"
    with pytest.warns(UserWarning, match=said):
        assert handle.extend(max_steps=9) == again
    assert not server.last(pb.ExtendSweepRequest).preview
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(UserWarning, match=said):
            handle.extend(max_steps=9)
    assert server.last(pb.ExtendSweepRequest).preview, "nothing is changed where warnings are errors"


def test_extend_waits_while_the_sweep_stops(server: FakeServer, handle: ob.SweepHandle) -> None:
    server.sweep.state = event_pb2.SWEEP_STATE_STOPPING
    over = pb.WatchSweepResponse(sweep=server.sweep)
    over.sweep.state = event_pb2.SWEEP_STATE_STOPPED
    server.news.put(over)
    server.news.put(None)
    handle.extend(trials=5)
    assert server.last(pb.ExtendSweepRequest).trials == 5
    assert server.news.empty()


@pytest.mark.parametrize("value", ["5", 2.5, True, 0])
def test_extend_checks_counts(handle: ob.SweepHandle, value: Any) -> None:
    with pytest.raises((TypeError, ValueError), match=r"extend: max_steps must be .*, got"):
        handle.extend(max_steps=value)


@pytest.mark.parametrize(
    ("metrics", "why"),
    [
        ({}, r"ended without trial.report\(accuracy=...\)"),
        ({"acc": 1.0, "loss": 2.0}, "they reported acc, loss; "),
        ({"accuracy": float("nan")}, "every value was NaN"),
    ],
)
def test_no_result_says_what_was_reported_instead(
    server: FakeServer, handle: ob.SweepHandle, metrics: dict[str, float], why: str
) -> None:
    server.trials[0] = make_trial(0, "completed")
    server.trials[0].ClearField("best")
    server.trials[0].last.metrics.clear()
    server.trials[0].last.metrics.update(metrics)
    with pytest.raises(ob.NoResultError, match=why):
        _ = handle.result().best


def test_no_result_says_why(server: FakeServer, handle: ob.SweepHandle) -> None:
    server.trials[0] = make_trial(0, "failed", reason="ValueError: no data")
    with pytest.raises(ob.NoResultError, match="no trial of s-1 has reported 'accuracy': ValueError: no data"):
        _ = handle.result().best
