"""Traces of programs that use OpenTelemetry."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import outbid as ob
from outbid import tune

trace = pytest.importorskip("opentelemetry.trace")
sdk = pytest.importorskip("opentelemetry.sdk.trace")
export = pytest.importorskip("opentelemetry.sdk.trace.export")
memory = pytest.importorskip("opentelemetry.sdk.trace.export.in_memory_span_exporter")


@pytest.fixture(scope="module")
def exported() -> Any:
    """Return the exporter of this process, which has one provider of traces for its life."""
    spans, provider = memory.InMemorySpanExporter(), sdk.TracerProvider()
    provider.add_span_processor(export.SimpleSpanProcessor(spans))
    trace.set_tracer_provider(provider)
    return spans


@pytest.fixture
def spans(exported: Any) -> Any:
    exported.clear()
    return exported


def test_run_is_a_span_and_trials_are_below_it(real: ob.Client, spans: Any, tmp_path: Path) -> None:
    found = tmp_path / "found"

    def train(trial: ob.Trial) -> float:
        import importlib

        trace = importlib.import_module("opentelemetry.trace")
        own = trace.get_current_span().get_span_context()
        found.write_text(f"{own.trace_id:032x} {own.is_remote}")
        return 1.0

    with trace.get_tracer("mine").start_as_current_span("mine") as mine:
        result = ob.Sweep(train, {"x": ob.uniform(0, 1)}, metric="loss", mode="min", trials=1).run(client=real)
    (run,) = [s for s in spans.get_finished_spans() if s.name == "outbid.run"]
    own = mine.get_span_context()
    assert run.parent is not None and (run.parent.trace_id, run.parent.span_id) == (own.trace_id, own.span_id)
    sent = real.spec(result.sweep.id).traceparent
    assert sent.startswith(f"00-{own.trace_id:032x}-{run.context.span_id:016x}-0")
    assert found.read_text() == f"{own.trace_id:032x} True"


def test_scripts_of_ray_tune_are_spans_too(real: ob.Client, spans: Any, tmp_path: Path) -> None:
    """Each of a script's ways to run an experiment is one span, and its sweeps belong to that trace."""

    def script(config: dict[str, Any]) -> None:
        tune.report({"loss": config["x"]})

    before = {sweep.id for sweep in real.sweeps()}
    space = {"x": tune.uniform(0, 1)}
    config = tune.RunConfig(storage_path=str(tmp_path), name="fitted", verbose=0)
    fitted = tune.Tuner(script, param_space=space, run_config=config)
    ways: list[Callable[[], Any]] = [
        fitted.fit,
        lambda: tune.run(script, config=space, storage_path=str(tmp_path), name="ran", verbose=0),
        lambda: tune.Tuner.restore(str(tmp_path / "fitted"), trainable=script, restart_errored=True).fit(),
    ]
    traces = set()
    for way in ways:
        spans.clear()
        way()
        (run,) = [s for s in spans.get_finished_spans() if s.name == "outbid.run"]
        traces.add(f"{run.context.trace_id:032x}")
    assert len(traces) == len(ways)
    sent = {real.spec(sweep.id).traceparent.split("-")[1] for sweep in real.sweeps() if sweep.id not in before}
    assert sent <= traces and len(sent) == 2
