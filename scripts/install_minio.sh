#!/usr/bin/env bash
# Build the MinIO server for the storage tests, unless it is there already.
#
# Needs Go, about 3 minutes and 150 MB. The binary is kept in ~/.cache/tblctl/bin, where tests/servers.py looks.
set -euo pipefail

version=v0.0.0-20260212201848-7aac2a2c5b7c
folder="${XDG_CACHE_HOME:-$HOME/.cache}/tblctl/bin"

if [ -x "$folder/minio" ]; then
    echo "MinIO is there: $folder/minio"
    exit 0
fi
if ! command -v go >/dev/null; then
    echo "MinIO is built from source, which needs Go: install it (https://go.dev/doc/install), then run this again" >&2
    exit 1
fi
mkdir -p "$folder"
echo "building MinIO $version into $folder (about 3 minutes)"
GOBIN="$folder" go install "github.com/minio/minio@$version"
