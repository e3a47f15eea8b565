#!/bin/sh
# Creates a one-time token for each of COUNT workers that does not have one yet. Each worker takes an unused token and joins
# with it. To add workers later: OUTBID_WORKERS=8 docker compose run --rm invite
# Usage: invite.sh INVITES ADMIN_TOKEN COUNT, with OUTBID_URL and OUTBID_CA_FILE set and outbid in the PATH.
set -eu
invites=$1
admin=$2
count=$3
umask 077
n=1
while [ "$n" -le "$count" ]; do
  if [ ! -e "$invites/.made-$n" ]; then
    outbid worker token --name "worker-$n" --expires 24h --token-file "$admin" >"$invites/.new"
    mv "$invites/.new" "$invites/worker-$n.token"
    : >"$invites/.made-$n"
  fi
  n=$((n + 1))
done
