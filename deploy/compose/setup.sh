#!/bin/sh
# Makes what the services need to trust each other, once. Each part gets a directory of its own, with what it needs and
# nothing else; the volumes of compose.yaml are these directories.
#   authority  the key of the certificate authority: no service sees it
#   nats       NATS's settings, and whom it trusts: nothing secret
#   minio      MinIO's user and password
#   serve      the cluster's keys, the API's certificate, who may call the API, the credentials of the store
#   admin      a token for the administrator: of invite, which lets workers in, and of people
#   public     the certificate of the authority
#   invites    the one-time tokens that workers join with; invite.sh makes them
# Usage: setup.sh SECRETS NATS_CONF, with outbid in the PATH.
set -eu
secrets=$1
conf=$2
umask 077
for part in authority nats minio serve admin public invites; do mkdir -p "$secrets/$part"; done

random() { od -An -N32 -tx1 /dev/urandom | tr -d ' \n'; }

if [ ! -s "$secrets/minio/password" ]; then
  printf outbid >"$secrets/minio/user"
  random >"$secrets/minio/password"
fi
cat >"$secrets/serve/aws-credentials" <<END
[default]
aws_access_key_id = $(cat "$secrets/minio/user")
aws_secret_access_key = $(cat "$secrets/minio/password")
END

if [ ! -s "$secrets/authority/cert.pem" ]; then
  outbid tls new --dir "$secrets/authority" --host localhost --host 127.0.0.1 --host serve
fi
cp "$secrets/authority/cert.pem" "$secrets/authority/key.pem" "$secrets/serve/"
cp "$secrets/authority/ca.pem" "$secrets/public/"
chmod 0600 "$secrets/authority"/*

if [ ! -s "$secrets/admin/admin.token" ]; then
  outbid token new --file "$secrets/serve/tokens" --name admin --tenant '*' --role admin >"$secrets/admin/admin.token"
  # With this one serve asks itself whether it is well.
  outbid token new --file "$secrets/serve/tokens" --name health --tenant '*' --role viewer-nologs >"$secrets/serve/health.token"
fi

outbid nats init --keys "$secrets/serve/keys" --include "$secrets/nats/auth.conf"
chmod 0600 "$secrets/nats/auth.conf" # no secret, but nobody else needs it
cp "$conf" "$secrets/nats/nats.conf"

# The numbers are the users of compose.yaml; trials of the worker's container are none of them.
chmod 0755 "$secrets/public"
chmod 0644 "$secrets/public/ca.pem"
if [ "$(id -u)" = 0 ]; then
  chown -R 10001:10001 "$secrets/serve"
  chown -R 10002:10002 "$secrets/minio"
  chown -R 10003:10003 "$secrets/nats"
fi
