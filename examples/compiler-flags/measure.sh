#!/bin/sh
# Builds the annealing example with some compiler flags and measures how long it takes: one step is one run.
# Usage: measure.sh SOURCE FLAG... Needs cc and GNU date.
set -eu
source=$1
shift
step=${OUTBID_START_STEP:-0}
until=${OUTBID_UNTIL_STEP:-3}
report=${OUTBID_REPORT:-/dev/stdout}

program=$(mktemp)
trap 'rm -f "$program"' EXIT
cc "$@" -o "$program" "$source" -lm
size=$(wc -c <"$program")
while [ "$step" -lt "$until" ]; do
  began=$(date +%s%N)
  # Without Outbid's variables the program runs by itself.
  env -u OUTBID_REPORT -u OUTBID_CHECKPOINT_IN -u OUTBID_CHECKPOINT_OUT OUTBID_UNTIL_STEP=3 OUTBID_SEED=1 \
    "$program" 0.1 0.8 reverse >/dev/null
  ended=$(date +%s%N)
  step=$((step + 1))
  awk -v step="$step" -v ns="$((ended - began))" -v size="$size" \
    'BEGIN { printf "{\"step\": %d, \"seconds\": %.4f, \"bytes\": %d}\n", step, ns / 1e9, size }' >>"$report"
done
