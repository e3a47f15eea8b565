#!/bin/sh
# Creates the keys and passwords of the services at the first start. Each service gets a directory with only its own files;
# these directories are the volumes of compose.yaml.
#   authority  the key of the certificate authority: no service sees it
#   nats       NATS's settings and the keys that it trusts; nothing secret
#   minio      MinIO's user and password
#   serve      the cluster's keys, the API's certificate and tokens, the credentials of the store
#   admin      the administrator's token, for people and for invite.sh
#   public     the certificate of the authority
#   invites    one-time tokens with which workers join; invite.sh creates them
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
  # The token of the health check.
  outbid token new --file "$secrets/serve/tokens" --name health --tenant '*' --role viewer-nologs >"$secrets/serve/health.token"
fi

outbid nats init --keys "$secrets/serve/keys" --include "$secrets/nats/auth.conf"
chmod 0600 "$secrets/nats/auth.conf" # not secret, but only NATS needs it
cp "$conf" "$secrets/nats/nats.conf"

# The users of compose.yaml. Trials of the worker's container never run as one of them.
chmod 0755 "$secrets/public"
chmod 0644 "$secrets/public/ca.pem"
if [ "$(id -u)" = 0 ]; then
  chown -R 10001:10001 "$secrets/serve"
  chown -R 10002:10002 "$secrets/minio"
  chown -R 10003:10003 "$secrets/nats"
fi
