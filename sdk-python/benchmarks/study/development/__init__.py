"""The problems that `bayes` is developed on."""

from __future__ import annotations

from development import classifiers, made, regressors
from problem import Collection

PROBLEMS = Collection({**classifiers.PROBLEMS, **regressors.PROBLEMS, **made.PROBLEMS})
