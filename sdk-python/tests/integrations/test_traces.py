"""Traces of programs that use OpenTelemetry."""

from __future__ import annotations

from pathlib import Path

import pytest

import outbid as ob

trace = pytest.importorskip("opentelemetry.trace")
sdk = pytest.importorskip("opentelemetry.sdk.trace")
export = pytest.importorskip("opentelemetry.sdk.trace.export")
memory = pytest.importorskip("opentelemetry.sdk.trace.export.in_memory_span_exporter")


def test_run_is_a_span_and_trials_are_below_it(real: ob.Client, tmp_path: Path) -> None:
    found = tmp_path / "found"

    def train(trial: ob.Trial) -> float:
        import importlib

        trace = importlib.import_module("opentelemetry.trace")
        own = trace.get_current_span().get_span_context()
        found.write_text(f"{own.trace_id:032x} {own.is_remote}")
        return 1.0

    spans, provider = memory.InMemorySpanExporter(), sdk.TracerProvider()
    provider.add_span_processor(export.SimpleSpanProcessor(spans))
    trace.set_tracer_provider(provider)
    with trace.get_tracer("mine").start_as_current_span("mine") as mine:
        result = ob.Sweep(train, {"x": ob.uniform(0, 1)}, metric="loss", mode="min", trials=1).run(client=real)
    (run,) = [s for s in spans.get_finished_spans() if s.name == "outbid.run"]
    own = mine.get_span_context()
    assert run.parent is not None and (run.parent.trace_id, run.parent.span_id) == (own.trace_id, own.span_id)
    sent = real.spec(result.sweep.id).traceparent
    assert sent.startswith(f"00-{own.trace_id:032x}-{run.context.span_id:016x}-0")
    assert found.read_text() == f"{own.trace_id:032x} True"
