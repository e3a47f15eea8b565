"""An experiment of Ray Tune that shares an Outbid cluster.

Usage: tune_program.py DIRECTORY NAME CLUSTER
"""

from __future__ import annotations

import fcntl
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

DEVICES = 2
STEPS = 4
GRID = [0.1, 0.3, 0.5]


def use_device(place: Path, who: str, seconds: float) -> None:
    """Use one of the devices for some time; if too many users do so at the same time, a file records that."""
    files = [(place / f"device-{n}").open("a") for n in range(DEVICES)]
    for file in files:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            break
        except BlockingIOError:
            continue
    else:
        (place / "too-many").touch()
    with (place / "steps").open("a") as steps:
        steps.write(who + "\n")
    time.sleep(seconds)
    for file in files:
        file.close()


def objective(config: dict[str, Any]) -> None:
    """Train some steps, each with a checkpoint, and then continue until the file `go` exists."""
    from ray import tune

    step = 0
    if (before := tune.get_checkpoint()) is not None:
        with before.as_directory() as directory:
            step = json.loads((Path(directory) / "state.json").read_text())
    while step < STEPS or not (Path(config["place"]) / "go").exists():
        step += 1
        use_device(Path(config["place"]), f"{config['name']} {config['x']} {step}", 0.3)
        saved = Path(config["place"]) / f"{config['name']}-{config['x']}-{step}"
        saved.mkdir(exist_ok=True)
        (saved / "state.json").write_text(json.dumps(step))
        loss = (config["x"] - 0.3) ** 2 + 1 / min(step, STEPS)
        tune.report({"loss": loss}, checkpoint=tune.Checkpoint.from_directory(saved))


def main(place: str, name: str, cluster: str) -> None:
    """Run the experiment and print its best configuration."""
    from ray import tune

    import outbid.ray

    scheduler = outbid.ray.Share(cluster=cluster, name=name)
    tuner = tune.Tuner(
        objective,
        param_space={"x": tune.grid_search(GRID), "place": place, "name": name},
        tune_config=tune.TuneConfig(metric="loss", mode="min", scheduler=scheduler),
        run_config=tune.RunConfig(storage_path=os.path.join(place, "results"), name=name, verbose=0),
    )
    results = tuner.fit()
    best = results.get_best_result()
    errors = [str(error) for error in results.errors]
    print(json.dumps({"best": best.config["x"], "loss": best.metrics["loss"], "errors": errors}), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
