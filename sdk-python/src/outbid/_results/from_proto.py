"""Conversions of the API's sweeps, trials and reports to values."""

from __future__ import annotations

from outbid._core.proto_convert import time_of, word
from outbid._results.checkpoint_info import checkpoint_info, soup_info
from outbid._results.forks import fork_round, lease_info, merge_info
from outbid._results.model import Fairness, Note, Report, Source, SweepInfo, TrialResult
from outbid._training import notes
from outbid._training.config import parse_config
from outbid.v1 import event_pb2, service_pb2

_COUNTS = {"stopped": "pruned", "cancelled": "stopped"}  # trial counts by state whose names in the schema are older


def trial_result(trial: service_pb2.Trial, source: Source) -> TrialResult:
    """Convert a trial of the API."""
    config, stored = (notes.complete(parse_config(trial.config_json), trial.attributes) for _ in range(2))
    if objects := getattr(source, "objects", {}).get(trial.sweep):
        objects.put_back(config)
    return TrialResult(
        sweep=trial.sweep,
        number=trial.number,
        state=word(event_pb2.TrialState.Name(trial.state)),
        reason=trial.reason,
        config=config,
        step=trial.step,
        until_step=trial.until_step,
        metric=trial.best if trial.HasField("best") else None,
        best_step=trial.best_step,
        metrics=dict(trial.last.metrics),
        train_seconds=trial.last.train_seconds,
        restarts=trial.restarts,
        resumes=trial.resumes,
        bracket=trial.bracket,
        node=trial.node,
        devices=tuple(trial.devices),
        device_seconds=trial.device_seconds,
        steps_per_second=trial.steps_per_second,
        created=time_of(trial, "created"),
        ended=time_of(trial, "ended"),
        checkpoints=tuple(checkpoint_info(c) for c in trial.checkpoints),
        leases=tuple(lease_info(lease) for lease in trial.leases),
        round=fork_round(trial.round) if trial.HasField("round") else None,
        merges=tuple(merge_info(merge) for merge in trial.merges),
        rounds=trial.rounds,
        attributes=notes.decode(trial.attributes),
        _source=source,
        _stored=stored,
        _outside=notes.changed_outside(trial.attributes),
    )


def sweep_info(sweep: service_pb2.Sweep, source: Source) -> SweepInfo:
    """Convert a sweep of the API."""
    return SweepInfo(
        id=sweep.id,
        name=sweep.spec.name,
        state=word(event_pb2.SweepState.Name(sweep.state)),
        reason=sweep.reason,
        metric=sweep.spec.metric,
        mode=sweep.spec.mode,
        counts={_COUNTS.get(f.name, f.name): getattr(sweep.counts, f.name) for f in sweep.counts.DESCRIPTOR.fields},
        best=trial_result(sweep.best, source) if sweep.HasField("best") else None,
        steps=sweep.steps,
        total_trials=sweep.outlook.trials,
        total_steps=sweep.outlook.steps,
        device_seconds=sweep.device_seconds,
        cost=sweep.cost if sweep.HasField("cost") else None,
        currency=sweep.currency,
        memory=tuple((one.sweep, one.trials) for one in sweep.memory),
        submitted=time_of(sweep, "submitted"),
        ended=time_of(sweep, "ended"),
        waiting=sweep.waiting,
        notes=tuple(
            Note(n.level, n.text, n.trial if n.HasField("trial") else None, time_of(n, "time")) for n in sweep.notes
        ),
        fairness=_fairness(sweep),
        seed=sweep.spec.tuner.seed if sweep.spec.tuner.HasField("seed") else None,
        objectives=((sweep.spec.metric, sweep.spec.mode), *((o.metric, o.mode) for o in sweep.spec.objectives)),
        soups=tuple(soup_info(soup) for soup in sweep.soups),
        description=sweep.annotation.description,
        tags=tuple(sweep.annotation.tags),
    )


def _fairness(sweep: service_pb2.Sweep) -> Fairness | None:
    if not sweep.HasField("fairness"):
        return None
    f = sweep.fairness
    return Fairness(f.rho, f.alone_seconds, f.forecast_seconds, f.mean_sweeps)


def report_info(report: service_pb2.TrialReport) -> Report:
    """Convert a report of the API."""
    inner = report.report
    time = time_of(inner, "time")
    return Report(report.trial, inner.step, dict(inner.metrics), time, inner.train_seconds, report.superseded)
