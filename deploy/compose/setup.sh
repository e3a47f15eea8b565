#!/bin/sh
# Makes what the services need to trust each other, once: the join token (NATS asks for it, workers prove with it that
# they belong to the cluster), MinIO's password, the API's certificate, and a token for the administrator.
# Usage: setup.sh SECRETS NATS_CONF, with outbid in the PATH.
set -eu
secrets=$1
conf=$2
umask 077
mkdir -p "$secrets/nats"

random() { od -An -N32 -tx1 /dev/urandom | tr -d ' \n'; }

if [ ! -s "$secrets/join.token" ]; then random >"$secrets/join.token"; fi
printf 'token: "%s"\n' "$(cat "$secrets/join.token")" >"$secrets/nats/token.conf"
cp "$conf" "$secrets/nats/nats.conf"

if [ ! -s "$secrets/minio.password" ]; then
  printf outbid >"$secrets/minio.user"
  random >"$secrets/minio.password"
fi
cat >"$secrets/aws-credentials" <<END
[default]
aws_access_key_id = $(cat "$secrets/minio.user")
aws_secret_access_key = $(cat "$secrets/minio.password")
END

if [ ! -s "$secrets/tls/cert.pem" ]; then
  outbid tls new --dir "$secrets/tls" --host localhost --host 127.0.0.1 --host serve
fi
if [ ! -s "$secrets/admin.token" ]; then
  outbid token new --file "$secrets/tokens" --name admin --tenant '*' --role admin >"$secrets/admin.token"
fi
