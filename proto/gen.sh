#!/usr/bin/env bash
# Regenerates the Go code in the folder of the .proto files, the Python code in the SDK, and the reference of tuners. Needs protoc-gen-go,
# protoc-gen-go-grpc and protoc-gen-grpc-gateway on the PATH, and a Python with grpcio-tools and mypy-protobuf as $PYTHON.
set -euo pipefail
cd "$(dirname "$0")"
out=../sdk-python/src
protos=(outbid/v1/*.proto)
"${PYTHON:-python3}" -m grpc_tools.protoc -I. \
  --go_out=. --go_opt=paths=source_relative \
  --go-grpc_out=. --go-grpc_opt=paths=source_relative \
  --grpc-gateway_out=. --grpc-gateway_opt=paths=source_relative,grpc_api_configuration=outbid/v1/service.http.yaml \
  "${protos[@]}"
"${PYTHON:-python3}" -m grpc_tools.protoc -I. --python_out="$out" --mypy_out="$out" "${protos[@]}"
"${PYTHON:-python3}" -m grpc_tools.protoc -I. --grpc_python_out="$out" --mypy_grpc_out="$out" \
  outbid/v1/service.proto outbid/v1/plugin.proto
descriptors=$(mktemp)
trap 'rm -f "$descriptors"' EXIT
"${PYTHON:-python3}" -m grpc_tools.protoc -I. --include_imports --include_source_info --descriptor_set_out="$descriptors" \
  "${protos[@]}"
"${PYTHON:-python3}" tuners.py "$descriptors" "$out/outbid" ../docs/reference
