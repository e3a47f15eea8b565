#!/bin/sh
# Makes the runs of docs/research/samplers/protocol.md that the given file does not have, with the python of $PYTHON.
set -eu
here=$(dirname "$0")
run() { "${PYTHON:-python}" "$here/compare.py" run "$@"; }
run "$1" --flights 1 4 16 --samplers random bayes optuna-tpe
run "$1" --samplers sobol optuna-tpe-multivariate optuna-cmaes hyperopt-tpe nevergrad-ngopt
run "$1" --trials 50 --seeds 7100 7101 7102 7103 7104 --samplers openbox-auto optuna-gp skopt-gp
