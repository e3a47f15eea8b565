"""Limits of tenants, set on the command line, apply to the SDK's sweeps on a real server."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

import outbid as ob


def tenant(client: ob.Client, *words: str) -> str:
    """Run `outbid tenant`; returns its output."""
    command = [os.environ["OUTBID_BIN"], "tenant", *words, "--server", client.url]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def train(trial: ob.Trial) -> None:
    """Record when each step begins and ends, to check how many trials train at the same time."""
    import time
    from pathlib import Path

    log = Path(trial.config.log)
    for step in trial.steps():
        with log.open("a") as f:
            f.write(f"begins {trial.number} {step}\n")
        time.sleep(0.05)
        with log.open("a") as f:
            f.write(f"ends {trial.number} {step}\n")
        trial.report(loss=1 / step)


def test_a_quota_holds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(Path(ob.__file__).parents[1]))
    with ob.connect(data=tmp_path / "data") as client:
        log = tmp_path / "log"
        space = {"x": ob.uniform(0, 1), "log": ob.choice([str(log)])}
        tuner = ob.Random(max_steps=3, seed=0)

        def sweep(devices: int) -> ob.Sweep:
            wants = ob.Resources(devices=devices)
            return ob.Sweep(
                train, space, metric="loss", mode="min", tuner=tuner, trials=4, resources=wants, name="some"
            )

        sweep(1).run(client=client, display=False)
        [name] = [t.name for t in client.tenants()]
        tenant(client, "add", name, "--devices", "1", "--weight", "2")
        log.unlink()
        result = sweep(1).run(client=client, display=False)
        assert [trial.state for trial in result.trials] == ["completed"] * 4
        steps = [line.split() for line in log.read_text().splitlines()]
        assert len(steps) == 2 * 4 * 3
        assert all(a[1:] == b[1:] for a, b in zip(steps[::2], steps[1::2], strict=True)), "two trained at once"
        with pytest.raises(ob.OutbidError, match=r"devices.* 2 .*quota|quota.*1"):
            sweep(2).run(client=client, display=False)
        [it] = [t for t in client.tenants() if t.name == name]
        assert (it.added, it.weight, it.devices, it.sweeps) == (True, 2.0, 1, 0)
        assert it.device_hours > 0
        assert name in tenant(client, "list")
        tenant(client, "remove", name)
        assert [t.added for t in client.tenants() if t.name == name] in ([False], [])


def prints_its_secret(trial: ob.Trial) -> None:
    """Write the secret to a file outside of Outbid, print it, and fail with it."""
    import os
    from pathlib import Path

    value = os.environ["API_KEY"]
    Path(trial.config.proof).write_text(value)
    print("printed", value)
    trial.note(noted=f"noted {value}")
    trial.report(loss=1.0)
    raise RuntimeError(f"failed with {value}")


def test_a_function_finds_a_secret_that_nothing_shows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(Path(ob.__file__).parents[1]))
    value, proof = 'a "quoted" välue', tmp_path / "proof"
    with ob.connect(data=tmp_path / "data") as client:
        client.secrets.set("key", value)
        assert [s.name for s in client.secrets.list()] == ["key"]
        sweep = ob.Sweep(
            prints_its_secret,
            {"proof": ob.choice([str(proof)])},
            metric="loss",
            mode="min",
            trials=1,
            max_restarts=0,
            env={"API_KEY": ob.Secret("key")},
        )
        handle = sweep.submit(client=client)
        handle.wait(display=False)
        assert proof.read_text() == value
        [trial] = handle.trials()
        assert "failed with ***" in trial.reason, trial.reason
        assert trial.attributes["noted"] == "noted ***"
        lines = [line.line for line in handle.logs()]
        assert "printed ***" in lines
        assert not [line for line in lines if "quoted" in line]
        client.secrets.remove("key")
        with pytest.raises(ob.InvalidError, match=r'function\.env\.API_KEY: tenant default has no secret "key"'):
            sweep.submit(client=client)
