"""The problems that `bayes` is developed on."""

from __future__ import annotations

from problem import Collection

from development import classifiers, made, regressors

PROBLEMS = Collection({**classifiers.PROBLEMS, **regressors.PROBLEMS, **made.PROBLEMS})
