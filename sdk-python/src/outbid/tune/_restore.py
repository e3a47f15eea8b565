"""Going on with an experiment that was begun before."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from outbid._client import default_client
from outbid._errors import NotFoundError
from outbid._model import ENDED_SWEEP, TrialResult
from outbid.tune._config import ResumeConfig, RunConfig, TuneConfig
from outbid.tune._driver import follow, resubmit
from outbid.tune._record import Run, collect


class Restored:
    """An experiment of before: its sweep goes on; trials that failed become a sweep of their own."""

    def __init__(self, made: Run, trainable: Any, how: ResumeConfig) -> None:
        self._made = made
        self._trainable = trainable
        self._unfinished = how.unfinished is ResumeConfig.ResumeType.RESUME
        self._errored = how.errored is ResumeConfig.ResumeType.RESUME
        self._restart = how.errored is ResumeConfig.ResumeType.RESTART
        plan = made.plan
        self.tune = made.tune if made.tune is not None else TuneConfig(metric=plan.metric, mode=plan.mode)
        self.config = made.config if made.config is not None else RunConfig()

    def results(self) -> Run:
        """Return how it stands, with what was trained once more since."""
        made = self._made
        made.infos = {t.number: t for t in default_client().attach(made.sweep).trials()}
        trials = {number: collect(made.plan, info) for number, info in made.infos.items()}
        for sweep, numbers in made.later:
            plan = replace(made.plan, numbers=numbers)
            for info in default_client().attach(sweep).trials():
                trials[numbers[info.number]] = collect(plan, info)
                made.infos[numbers[info.number]] = info
        made.trials = [trials[number] for number in sorted(trials)]
        return made

    def run(self) -> Run:
        """Go on until the end."""
        made = self._made
        try:
            handle = default_client().attach(made.sweep)
        except NotFoundError:
            raise NotFoundError(
                f"the sweep {made.sweep} of this experiment is not on this server: restore it where it was run, or "
                f"connect first, with ob.connect(...); it was at {made.url}"
            ) from None
        state = handle.info().state
        if self._unfinished and state in ("paused", "stopped"):
            handle.resume()
        if state not in ENDED_SWEEP or (self._unfinished and state == "stopped"):
            made = follow(made, handle, self.tune, self.config)
        if made.later or state in ENDED_SWEEP:
            made = self.results()
        again = {n: t for n, t in made.infos.items() if t.state == "failed"} if self._errored or self._restart else {}
        return self._again(made, again) if again else made

    def _again(self, made: Run, failed: dict[int, TrialResult]) -> Run:
        """Train those that failed once more, from their checkpoints or anew; the others stay as they are."""
        kept = {t.number: t for t in made.trials}
        second, handle = resubmit(
            made, failed, self._trainable, self.tune, self.config, going_on=self._errored and not self._restart
        )
        made.later.append((handle.id, list(failed)))
        made.save()
        second = follow(second, handle, self.tune, self.config)
        for trial in second.trials:
            kept[trial.number] = trial
        second.trials = [kept[n] for n in sorted(kept)]
        return second
