"""The trace that this program's sweeps belong to, as W3C Trace Context describes it.

OpenTelemetry is used if the program has imported it, or if a trial of a traced sweep can. It is not required.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import re
import sys
from collections.abc import Iterator

HEADER = "traceparent"
VARIABLE = "TRACEPARENT"
"""The environment variable of a trial with its span, and of a program with the span that started it."""


_FORM = re.compile("00-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})")


def trace_headers() -> list[tuple[str, str]]:
    """Return the header of calls with the current span, else with that of the environment, or none without a trace."""
    current = _current()
    return [(HEADER, current)] if _FORM.fullmatch(current) else []


def _current() -> str:
    if (trace := sys.modules.get("opentelemetry.trace")) is not None:
        span = trace.get_current_span().get_span_context()
        if span.is_valid:
            return f"00-{span.trace_id:032x}-{span.span_id:016x}-{span.trace_flags:02x}"
    return os.environ.get(VARIABLE, "")


@contextlib.contextmanager
def span(name: str) -> Iterator[None]:
    """Record a span around a block, if the program uses OpenTelemetry."""
    if (trace := sys.modules.get("opentelemetry.trace")) is None:
        yield
        return
    with _parent(os.environ.get(VARIABLE, "")), trace.get_tracer("outbid").start_as_current_span(name):
        yield


@contextlib.contextmanager
def of_trial(parent: str) -> Iterator[None]:
    """Let a trial's training code find its span: in the environment, and as OpenTelemetry's current span."""
    if not parent:
        os.environ.pop(VARIABLE, None)
        yield
        return
    os.environ[VARIABLE] = parent
    with contextlib.suppress(ImportError):
        importlib.import_module("opentelemetry.trace")
    with _parent(parent):
        yield


@contextlib.contextmanager
def _parent(parent: str) -> Iterator[None]:
    """Make a traceparent the parent of new spans, unless a span is current or OpenTelemetry is missing."""
    trace, form = sys.modules.get("opentelemetry.trace"), _FORM.fullmatch(parent)
    if trace is None or form is None or trace.get_current_span().get_span_context().is_valid:
        yield
        return
    ids = [int(part, 16) for part in form.groups()]
    remote = trace.SpanContext(ids[0], ids[1], is_remote=True, trace_flags=trace.TraceFlags(ids[2]))
    with trace.use_span(trace.NonRecordingSpan(remote)):
        yield
