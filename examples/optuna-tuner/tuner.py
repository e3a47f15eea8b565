"""A tuner that draws its trials with Optuna's samplers: TPE, CMA-ES, a Gaussian process, or at random.

Every trial is trained to the end, and its last metric is passed to Optuna. A new sampler is created for each trial,
seeded by the sweep's seed and the trial's number. So Optuna's trials are the only state, and the same seed gives the
same trials, also after a restart.
"""

import hashlib
import json
import math
import warnings

import optuna
import outbid as ob
from optuna.distributions import distribution_to_json, json_to_distribution
from optuna.trial import FrozenTrial, TrialState
from outbid import plugin


class Optuna(plugin.Tuner):
    """Settings: `trials`, `sampler` (tpe, cmaes, gp or random) and `startup`, the number of random trials before it."""

    name, version = "optuna", optuna.__version__

    def start(self):
        if self.spec.constraints:
            raise ob.InvalidError(
                "constraints: Optuna's samplers do not know them; leave them out, or use another tuner"
            )
        self.read()
        self.study = optuna.create_study(direction="maximize" if self.spec.maximise else "minimize")
        for kept in self.state or []:
            self.study.add_trial(to_trial(kept))

    def read(self):
        settings = self.spec.settings
        self.trials = settings.whole("trials", self.spec.trials or 100, least=1)
        self.sampler = settings.text("sampler", "tpe", choices=sorted(SAMPLERS))
        self.startup = settings.whole("startup", 10, least=1)
        if self.sampler == "gp" and (missing := missing_for_gp()):
            raise settings.wrong("sampler", f"gp needs {missing}: pip install 'outbid[optuna,torch]'")

    def ask(self, n):
        for _ in range(min(n, self.trials - self.created)):
            digest = hashlib.sha256(f"{self.spec.seed}/{self.created}".encode()).digest()
            self.study.sampler = SAMPLERS[self.sampler](int.from_bytes(digest[:4], "big"), self.startup)
            trial = self.study.ask()
            config = self.spec.space.configuration(lambda d, trial=trial: suggest(trial, d))
            yield plugin.Create(config, until_step=self.spec.max_steps, reason=f"drawn by {self.sampler}")

    def reached(self, report):
        self.tell(report.trial, report.metric)
        yield plugin.End(report.trial, reason="trained to the end")

    def exited(self, exit):
        self.tell(exit.trial, math.nan if exit.failed else exit.metric)
        return ()

    def extended(self):
        self.read()
        return ()

    def tell(self, trial, metric):
        if math.isfinite(metric):
            self.study.tell(trial, metric)
        else:
            self.study.tell(trial, state=TrialState.FAIL)

    def exhausted(self):
        return self.created >= self.trials

    def outlook(self):
        return plugin.Outlook(trials=self.trials, steps=self.trials * self.spec.max_steps)

    def snapshot(self):
        return json.dumps([to_json(t) for t in self.study.get_trials(deepcopy=False)]).encode()


# CMA-ES and the Gaussian process also call the first trials `startup`, but need other numbers of them.
SAMPLERS = {
    "random": lambda seed, startup: optuna.samplers.RandomSampler(seed=seed),
    "tpe": lambda seed, startup: optuna.samplers.TPESampler(
        seed=seed, n_startup_trials=startup, multivariate=True, constant_liar=True
    ),
    "cmaes": lambda seed, startup: optuna.samplers.CmaEsSampler(
        seed=seed, n_startup_trials=startup, warn_independent_sampling=False
    ),
    "gp": lambda seed, startup: optuna.samplers.GPSampler(
        seed=seed, n_startup_trials=startup, warn_independent_sampling=False
    ),
}


def missing_for_gp():
    for name in ("torch", "scipy"):
        try:
            __import__(name)
        except ImportError:
            return name
    return ""


def suggest(trial, d):
    """Ask Optuna for a parameter. Optuna does not support steps on a log scale, so these values are rounded later."""
    if d.kind == "choice":
        return d.values[trial.suggest_categorical(d.path, tuple(range(d.count)))]
    last = d.nth(d.count - 1) if d.quantum else d.high
    step = {} if d.log or not d.quantum else {"step": d.quantum}
    draw = trial.suggest_int if d.kind == "int" else trial.suggest_float
    return draw(d.path, d.low, last, log=d.log, **step)


def to_json(trial):
    return {
        "state": trial.state.name,
        "value": trial.value,
        "params": trial.params,
        "distributions": {name: distribution_to_json(d) for name, d in trial.distributions.items()},
        "attributes": trial.system_attrs,
    }


def to_trial(kept) -> FrozenTrial:
    return optuna.trial.create_trial(
        state=TrialState[kept["state"]],
        value=kept["value"],
        params=kept["params"],
        distributions={name: json_to_distribution(d) for name, d in kept["distributions"].items()},
        system_attrs=kept["attributes"],
    )


if __name__ == "__main__":
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
    plugin.serve(Optuna())
