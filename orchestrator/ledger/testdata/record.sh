#!/usr/bin/env bash
# record.sh OUTBID FILE: writes the ledger of a small cluster that lives through most of what a ledger can hold. A release
# records one into the folder of its version; docs/develop/release.md has the commands.
set -euo pipefail
outbid=$(realpath "$1"); out=$(realpath -m "$2")
dir=$(mktemp -d); cd "$dir"
export HOME=$dir
server= far= other=
trap 'kill -9 $server $far $other 2>/dev/null || true' EXIT

work='step=$OUTBID_START_STEP
while [ "$step" -lt "$OUTBID_UNTIL_STEP" ]; do
  step=$((step + 1)); sleep 0.1
  echo "{{\"step\": $step, \"loss\": $(awk "BEGIN {{ print {lr} + 1 / $step }}")}}" >> "$OUTBID_REPORT"
done
echo "$step" > "$OUTBID_CHECKPOINT_OUT"'

spec() { # NAME TUNER REST PROGRAM
  printf 'name: %s\nspace: {lr: {float: {low: 0.001, high: 1, log: true}}}\nmetric: loss\nmode: min\ntuner: {%s, seed: 7}\n%s\n' "$1" "$2" "$3" > "$1.yaml"
  if [ -n "${4:-}" ]; then printf 'program:\n  shell: |\n' >> "$1.yaml"; sed 's/^/    /' <<<"$4" >> "$1.yaml"; fi
  "$outbid" submit "$1.yaml"
}
up() { # OPTIONS
  rm -f ready.json
  "$outbid" up --data data --ready-file ready.json --api 127.0.0.1:0 --lease 3s "$@" >> server.log 2>&1 &
  server=$!
  for _ in $(seq 600); do [ -s ready.json ] && break; sleep 0.1; done
  export OUTBID_URL=$(sed -n 's/.*"api": *"\([^"]*\)".*/\1/p' ready.json)
  nats=$(sed -n 's/.*"nats": *"\([^"]*\)".*/\1/p' ready.json)
}
join() { "$outbid" worker --name "$1" --devices "$2" --label rack="$3" --keys data/keys --nats "$nats" --dir "w-$1" >> "$1.log" 2>&1 & }
post() { curl -sS "$OUTBID_URL/v1/$1" -d "$2"; echo; }
stats() { "$outbid" ls | tail -n +1; }
rejoin() { # a restarted server has another port
  kill -9 $far $other 2>/dev/null || true
  join far v100:1,p100:1 b; far=$!
  join other p100:2@0.5 b; other=$!
}
until_state() { for _ in $(seq 900); do "$outbid" ls -o jsonl | grep "\"$1\"" | grep -q "$2" && return; sleep 0.2; done; echo "waited for $1 $2" >&2; exit 1; }

up --devices v100:2 --policy themis --policy-option lease=4s
join far v100:1,p100:1 b; far=$!
join other p100:2@0.5 b; other=$!
for _ in $(seq 100); do [ "$("$outbid" nodes | grep -c up)" -ge 3 ] && break; sleep 0.2; done; "$outbid" nodes; "$outbid" nodes -o jsonl
spec single 'asha: {max_steps: 27, eta: 3}' 'limits: {trials: 9, concurrency: 2}' "$work"
spec gang 'successive_halving: {max_steps: 120, min_steps: 40, trials: 3, eta: 3}' 'resources: {devices: {min: 3, max: 4}, spread: true, mixed: true, processes: per_device}' "[ \"\$RANK\" = 0 ] || {{ sleep 0.3; exit 0; }}
$work"
spec held 'successive_halving: {max_steps: 4, min_steps: 2, trials: 2, eta: 2}' 'external: {timeout: 1h}'
lease=$(post sweeps/held-1:ask '{"client": "laptop"}' | sed -n 's/.*"lease_id":"\([0-9]*\)".*/\1/p')
post sweeps/held-1/trials/0:tell "{\"lease_id\": $lease, \"reports\": [{\"step\": 1, \"metrics\": {\"loss\": 0.3}}]}"
sleep 4
spec members 'pbt: {max_steps: 160, interval: 20, population: 4, quantile: 0.3}' 'limits: {concurrency: 4}' "$work"
spec broken 'random: {max_steps: 4}' 'max_restarts: 1
limits: {trials: 3}' 'echo "{{\"step\": 1, \"loss\": 1}}" >> "$OUTBID_REPORT"; sleep 0.5; exit 3'
sleep 5
"$outbid" pause gang-1
sleep 2
kill -9 $far; far=
sleep 7
"$outbid" resume gang-1
kill -9 $server; server=
sleep 1
up --devices v100:2 --policy themis --policy-option lease=6s --policy-option f=0.5
rejoin
sleep 6
post sweeps/held-1:ask '{"client": "desk"}'
"$outbid" stop members-1
sleep 3
"$outbid" resume members-1 || true
spec later 'random: {max_steps: 9}' 'limits: {trials: 4}' "$work"
until_state later-1 '"done"'
"$outbid" extend later-1 --max-steps 15 --yes || true
until_state broken-1 '"failed"\|"done"'
"$outbid" delete broken-1 --yes || "$outbid" delete broken-1 || true
kill -INT $server; wait $server || true; server=
up --devices v100:2 --policy tiresias
rejoin
until_state members-1 '"done"'
until_state later-1 '"done"'
spec last 'asha: {max_steps: 9, eta: 3}' 'limits: {trials: 4}' "$work"
until_state last-1 '"done"'
until_state gang-1 '"done"'
stats
"$outbid" show later-1 | head -30
spec open 'successive_halving: {max_steps: 300, min_steps: 300, trials: 2, eta: 2}' 'resources: {devices: {min: 3, max: 3}, spread: true, mixed: true, processes: per_device}' "[ \"\$RANK\" = 0 ] || {{ sleep 60; exit 0; }}
$work"
sleep 4
kill -9 $server; wait $server || true; server=
"$outbid" export --ledger "$out" --data data
gzip -9 -n -f "$out"
rm -rf "$dir"
