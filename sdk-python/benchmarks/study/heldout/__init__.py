"""The problems that were not used during development. They share no data and no space with those of development."""

from __future__ import annotations

from problem import Collection

from heldout import classifiers, made, regressors, systems

PROBLEMS = Collection({**classifiers.PROBLEMS, **regressors.PROBLEMS, **systems.PROBLEMS, **made.PROBLEMS})
