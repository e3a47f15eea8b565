"""Traces from `run()` to the process of a trial."""

from __future__ import annotations

from pathlib import Path

import pytest

import outbid as ob

TRACE = "0af7651916cd43dd8448eb211c80319c"


def test_trials_belong_to_the_trace_of_run(real: ob.Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = tmp_path / "found"

    def train(trial: ob.Trial) -> float:
        import os

        with found.open("a") as file:
            file.write(os.environ.get("TRACEPARENT", "none") + "\n")
        return 1.0

    sweep = ob.Sweep(train, {"x": ob.uniform(0, 1)}, metric="loss", mode="min", trials=2)
    monkeypatch.setenv("TRACEPARENT", f"00-{TRACE}-b7ad6b7169203331-01")
    sweep.run(display=False, client=real)
    spans = found.read_text().split()
    assert [span.split("-")[1] for span in spans] == [TRACE, TRACE]
    assert len(set(spans)) == 2 and "b7ad6b7169203331" not in "".join(spans)
    monkeypatch.delenv("TRACEPARENT")
    found.unlink()
    sweep.run(display=False, client=real)
    assert found.read_text().split() == ["none", "none"]
