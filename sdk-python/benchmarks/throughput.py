"""Trials and reports per second of Outbid, Ray Tune and Optuna, and the seconds of one trial from a cold start.

    python benchmarks/throughput.py run results.jsonl --repeats 3     # every system, in turn
    python benchmarks/throughput.py show results.jsonl                # the tables of docs/benchmarks.md

Each measurement is a new process in an empty directory. benchmarks/README.md lists what is counted and the best
settings for each system. Systems whose package is not installed are skipped.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
WORKLOADS = ("trials", "reports", "cold")
TRIALS = 1000
REPORTERS, REPORTS = 4, 5000
LIMIT = 60.0  # seconds after which a slow system is stopped; its rate is that of its work until then
SYSTEMS = (
    "outbid",
    "ray",
    "ray-defaults",
    "optuna-memory",
    "optuna-journal",
    "optuna-journal-2",
    "optuna-sqlite",
    "optuna-sqlite-2",
    "optuna-heartbeat",
    "outbid-default",
    "outbid-tpe",
    "optuna-journal-tpe",
)
LEARNING = ("outbid-default", "outbid-tpe", "optuna-journal-tpe")  # systems that draw trials from earlier results
NAMES = {
    "outbid": "Outbid",
    "ray": "Ray Tune, at its best",
    "ray-defaults": "Ray Tune, its defaults",
    "optuna-memory": "Optuna, in memory",
    "optuna-journal": "Optuna, journal file",
    "optuna-journal-2": "Optuna, journal file, 2 processes",
    "optuna-sqlite": "Optuna, SQLite",
    "optuna-sqlite-2": "Optuna, SQLite, 2 processes",
    "optuna-heartbeat": "Optuna, SQLite with heartbeat",
    "outbid-default": "Outbid, its default tuner",
    "outbid-tpe": "Outbid, TPE",
    "optuna-journal-tpe": "Optuna, journal file, TPE",
}
SURVIVES = {
    "outbid": "yes",
    "ray": "no",
    "ray-defaults": "to the last snapshot",
    "optuna-memory": "no",
}


def outbid(workload: str, kind: str) -> tuple[int, float]:
    """Measure Outbid: the server's trials or reports, and the seconds from submission to result."""
    os.environ.setdefault("OUTBID_DEVICES", f"cpu:{os.cpu_count()}")  # also if another server uses the cores
    began = time.perf_counter()
    import outbid as ob

    def one(trial: Any) -> None:
        trial.report(loss=trial.config.x**2)

    def many(trial: Any) -> None:
        for step in range(1, REPORTS + 1):
            trial.report(step=step, loss=trial.config.x / step)

    if workload != "cold":
        client = ob.connect(data="data")
        began = time.perf_counter()
    function, trials = {"trials": (one, TRIALS), "reports": (many, REPORTERS), "cold": (one, 1)}[workload]
    sweep = ob.Sweep(
        function, {"x": ob.uniform(-1, 1)}, metric="loss", mode="min", tuner=tuner(workload, kind), trials=trials
    )
    result = sweep.run(display=False)
    took = time.perf_counter() - began
    assert result.best.metric is not None and len(result.trials) == trials
    if workload == "reports":
        return len(result.reports()), took
    if workload == "trials":
        client.close()
    return sum(trial.metric is not None for trial in result.trials), took


def tuner(workload: str, kind: str) -> Any:
    """Return the tuner: random like the rivals', or the default for a cold trial, like a new user's."""
    import outbid as ob

    if kind == "tpe":
        return ob.TPE()
    return None if workload == "cold" or kind == "default" else ob.Random()


def ray(workload: str, *, best: bool = True) -> tuple[int, float]:
    """Measure Ray Tune: the results that its driver processed."""
    began = time.perf_counter()
    os.environ.update({"RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0", "RAY_AIR_NEW_OUTPUT": "0"})
    if best:
        os.environ.update(
            {
                "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1",
                "TUNE_RESULT_BUFFER_LENGTH": "1000",
                "TUNE_GLOBAL_CHECKPOINT_S": "600",
                "TUNE_WARN_THRESHOLD_S": "600",
            }
        )
    import ray as cluster
    from ray import tune

    class Count(tune.Callback):
        taken = 0

        def on_trial_result(self, *_: Any, **__: Any) -> None:
            self.taken += 1

    class Late(tune.Stopper):
        def __call__(self, trial_id: str, result: Any) -> bool:
            return False

        def stop_all(self) -> bool:
            return time.perf_counter() - began > LIMIT

    def one(config: Any) -> None:
        tune.report({"loss": config["x"] ** 2})

    def many(config: Any) -> None:
        for step in range(1, REPORTS + 1):
            tune.report({"loss": config["x"] / step})

    quiet: dict[str, Any] = {"include_dashboard": False, "log_to_driver": False, "logging_level": "error"}
    cluster.init(address="local", num_cpus=os.cpu_count(), **quiet)
    if workload != "cold":
        began = time.perf_counter()
    function, trials = {"trials": (one, TRIALS), "reports": (many, REPORTERS), "cold": (one, 1)}[workload]
    count = Count()
    settings: dict[str, Any] = {"reuse_actors": True, "max_concurrent_trials": os.cpu_count()} if best else {}
    results = tune.Tuner(
        function,
        param_space={"x": tune.uniform(-1, 1)},
        tune_config=tune.TuneConfig(metric="loss", mode="min", num_samples=trials, **settings),
        run_config=tune.RunConfig(storage_path=os.getcwd(), verbose=0, callbacks=[count], stop=Late()),
    ).fit()
    took = time.perf_counter() - began
    assert not results.errors, results.errors
    cluster.shutdown()
    return count.taken, took


def optuna(workload: str, kind: str, processes: int, *, tpe: bool) -> tuple[int, float]:
    """Measure Optuna: the trials or intermediate values in its study."""
    began = time.perf_counter()
    import optuna as library

    library.logging.set_verbosity(library.logging.ERROR)
    sampler = library.samplers.TPESampler(seed=1) if tpe else library.samplers.RandomSampler(seed=1)
    study = library.create_study(study_name="study", storage=storage(kind), sampler=sampler)
    if workload != "cold":
        began = time.perf_counter()
    if processes == 1:
        work(study, workload, TRIALS if workload == "trials" else REPORTERS, began)
    else:
        share = [str((TRIALS if workload == "trials" else REPORTERS) // processes)] * processes
        command = [sys.executable, __file__, "work", workload, kind]
        pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        running = [subprocess.Popen([*command, n, str(seed)], **pipes) for seed, n in enumerate(share)]
        for process in running:
            assert process.stdout.readline() == b"ready\n"
        began = time.perf_counter()
        for process in running:
            process.stdin.close()  # starts the process's work
        for process in running:
            assert process.wait() == 0
    took = time.perf_counter() - began
    trials = study.get_trials(deepcopy=False)
    if workload == "reports":
        return sum(len(trial.intermediate_values) for trial in trials), took
    return sum(trial.state.is_finished() for trial in trials), took


def work(study: Any, workload: str, trials: int, began: float) -> None:
    """Run one process's share of a study."""
    late = began + LIMIT

    def one(trial: Any) -> float:
        if time.perf_counter() > late:
            study.stop()
        value: float = trial.suggest_float("x", -1, 1) ** 2
        trial.report(value, 1)
        return value

    def many(trial: Any) -> float:
        x: float = trial.suggest_float("x", -1, 1)
        for step in range(1, REPORTS + 1):
            trial.report(x / step, step)
            if time.perf_counter() > late:
                study.stop()
                break
        return x

    study.optimize(many if workload == "reports" else one, n_trials=1 if workload == "cold" else trials)


def storage(kind: str) -> Any:
    """Return one of Optuna's storages, in the current directory."""
    import optuna as library

    if kind == "memory":
        return None
    if kind == "journal":
        backend = library.storages.journal.JournalFileBackend("journal.log")
        return library.storages.JournalStorage(backend)
    options = {"heartbeat_interval": 60, "grace_period": 120} if kind == "heartbeat" else {}
    return library.storages.RDBStorage("sqlite:///study.db", **options)


def measure(system: str, workload: str) -> tuple[int, float]:
    """Measure one system in this process."""
    if system.startswith("outbid"):
        return outbid(workload, system.partition("-")[2])
    if system.startswith("ray"):
        return ray(workload, best=system == "ray")
    _, kind, *more = system.split("-")
    return optuna(workload, kind, 2 if more == ["2"] else 1, tpe=more == ["tpe"])


def run(path: Path, systems: list[str], workloads: list[str], repeats: int) -> None:
    """Measure in turn, each time in a new process and directory, and append to the file."""
    for repeat in range(repeats):
        for workload in workloads:
            for system in systems:
                package = system.split("-")[0]
                if importlib.util.find_spec(package) is None:
                    continue
                if workload == "cold" and (system.endswith("-2") or system == "ray-defaults"):
                    continue
                if workload != "trials" and system in LEARNING:
                    continue
                with tempfile.TemporaryDirectory(prefix="outbid-bench-") as place:
                    load = os.getloadavg()[0]
                    command = [sys.executable, str(HERE / "throughput.py"), "one", system, workload]
                    began = time.perf_counter()
                    done = subprocess.run(command, cwd=place, capture_output=True, text=True, timeout=900)
                    whole = time.perf_counter() - began
                if done.returncode:
                    print(f"{system} {workload} failed:\n{done.stderr[-3000:]}", flush=True)
                    with path.open("a") as out:
                        why = done.stderr.strip().rpartition("\n")[2][-300:]
                        out.write(json.dumps({"system": system, "workload": workload, "failed": why}) + "\n")
                    continue
                count, took = json.loads(done.stdout.splitlines()[-1])
                row = {"system": system, "workload": workload, "count": count, "seconds": round(took, 4)}
                row |= {"process": round(whole, 3), "load": round(load, 2), "repeat": repeat}
                with path.open("a") as out:
                    out.write(json.dumps(row) + "\n")
                print(json.dumps(row), flush=True)


def show(path: Path) -> None:
    """Print the table: medians, and the range over the repeats."""
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    for row in [row for row in rows if "failed" in row]:
        print(f"failed once: {NAMES[row['system']]}, {row['workload']}: {row['failed']}\n")
    rows = [row for row in rows if "failed" not in row]
    named = []
    for package in ("outbid", "ray", "optuna", "sqlalchemy"):
        try:
            named.append(f"{package} {version(package)}")
        except PackageNotFoundError:
            continue
    loads = [row["load"] for row in rows]
    print(f"Python {platform.python_version()}, {', '.join(named)}; {os.cpu_count()} cores; ", end="")
    print(f"load average before a measurement {min(loads)} to {max(loads)}\n")
    print("| | trials/s | reports/s | one cold trial, s | survives kill -9 |\n|---|---|---|---|---|")
    ours: dict[str, float] = {}
    for system in SYSTEMS:
        cells = []
        for workload in WORKLOADS:
            mine = [row for row in rows if row["system"] == system and row["workload"] == workload]
            found = [r["seconds"] if workload == "cold" else r["count"] / r["seconds"] for r in mine]
            if not found:
                cells.append("")
                continue
            middle = statistics.median(found)
            ours.setdefault(workload, middle)
            shown = "{:.2f}" if workload == "cold" else "{:,.0f}" if middle >= 100 else "{:.1f}"
            factor = middle / ours[workload] if workload == "cold" else ours[workload] / middle
            spread = f"{shown.format(min(found))} to {shown.format(max(found))}"
            cells.append(f"{shown.format(middle)} ({spread})" + (f", 1/{factor:.1f}" if system != "outbid" else ""))
        if any(cells):
            print(f"| {NAMES[system]} | " + " | ".join(cells) + f" | {SURVIVES.get(system, 'yes')} |")


def main() -> int:
    """Run, show, or do one measurement."""
    if sys.argv[1:2] == ["one"]:
        print(json.dumps(measure(sys.argv[2], sys.argv[3])))
        return 0
    if sys.argv[1:2] == ["work"]:
        import optuna as library

        library.logging.set_verbosity(library.logging.ERROR)
        workload, kind, trials, seed = sys.argv[2:]
        sampler = library.samplers.RandomSampler(seed=int(seed))
        study = library.load_study(study_name="study", storage=storage(kind), sampler=sampler)
        print("ready", flush=True)
        sys.stdin.readline()
        work(study, workload, int(trials), time.perf_counter())
        return 0
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("run", "show"))
    parser.add_argument("file", type=Path)
    parser.add_argument("--systems", nargs="+", default=list(SYSTEMS), choices=SYSTEMS)
    parser.add_argument("--workloads", nargs="+", default=list(WORKLOADS), choices=WORKLOADS)
    parser.add_argument("--repeats", type=int, default=3)
    given = parser.parse_args()
    if given.what == "run":
        run(given.file, given.systems, given.workloads, given.repeats)
    else:
        show(given.file)
    return 0


if __name__ == "__main__":
    sys.exit(main())
