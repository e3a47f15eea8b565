#!/bin/sh
# Joins the cluster with a one-time token, the first time, and runs the worker.
# Usage: worker.sh INVITES DIR [FLAG...], with OUTBID_URL and OUTBID_CA_FILE set and outbid in the PATH.
set -eu
invites=$1
dir=$2
shift 2
umask 077

# take renames a token, which works for one of those who try.
take() {
  for token in "$invites"/*.token; do
    if mv "$token" "$invites/.taken-$(hostname)-$$" 2>/dev/null; then
      mv "$invites/.taken-$(hostname)-$$" "$dir/invite"
      return 0
    fi
  done
  return 1
}

if [ ! -s "$dir/identity/worker.json" ]; then
  until [ -s "$dir/invite" ] || take; do sleep 1; done
  outbid worker join --join-token "$dir/invite" --credentials "$dir/identity"
  rm -f "$dir/invite"
fi
exec outbid worker --credentials "$dir/identity" --dir "$dir/work" "$@"
