"""Syne Tune's schedulers on Outbid: they draw and stop the trials of a sweep. Needs Syne Tune 0.14 or later.

    import outbid.synetune
    from syne_tune.config_space import loguniform
    from syne_tune.optimizer.baselines import ASHA

    def train(trial):
        for step in trial.steps():
            trial.report(step=step, loss=...)

    scheduler = ASHA({"lr": loguniform(1e-4, 1)}, metric="loss", time_attr="step", max_t=27)
    result = outbid.synetune.sweep(train, scheduler, trials=20).run()

The scheduler runs in a process on the server's machine, which needs Syne Tune there. It is a copy: the script's object
does not learn anything.
"""

from __future__ import annotations

from outbid.integrations.synetune import sweep

__all__ = ["sweep"]
