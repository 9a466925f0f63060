#!/usr/bin/env bash
# Install Trino and Nessie for `make test-trino`, unless they are there.
#
# Needs Maven, and Java 24 or newer to run them. About 1.1 GB to load, of which 740 MB stay, kept in ~/.cache/tblctl, where
# tests/engines looks.
set -euo pipefail

trino=476
nessie=0.99.0
folder="${XDG_CACHE_HOME:-$HOME/.cache}/tblctl"

if [ ! -x "$folder/trino-server-$trino/bin/launcher" ] || [ ! -f "$folder/nessie-quarkus-$nessie-runner.jar" ]; then
    if ! command -v mvn >/dev/null; then
        echo "Trino and Nessie are loaded by Maven: install it, then run this again" >&2
        exit 1
    fi
fi
mkdir -p "$folder"
load() { mvn -q -B dependency:copy -Dartifact="$1" -DoutputDirectory="$folder"; }

if [ -x "$folder/trino-server-$trino/bin/launcher" ]; then
    echo "Trino is there: $folder/trino-server-$trino"
else
    echo "loading Trino $trino into $folder"
    load "io.trino:trino-server:$trino:tar.gz"
    rm -rf "$folder/trino.new"
    mkdir "$folder/trino.new"
    tar -xzf "$folder/trino-server-$trino.tar.gz" -C "$folder/trino.new"
    # One of its plugins is needed. Others share files with it as hard links, so all are unpacked first.
    find "$folder/trino.new/trino-server-$trino/plugin" -mindepth 1 -maxdepth 1 ! -name iceberg -exec rm -r {} +
    mv "$folder/trino.new/trino-server-$trino" "$folder/"
    rm -r "$folder/trino.new" "$folder/trino-server-$trino.tar.gz"
fi
if [ -f "$folder/nessie-quarkus-$nessie-runner.jar" ]; then
    echo "Nessie is there: $folder/nessie-quarkus-$nessie-runner.jar"
else
    echo "loading Nessie $nessie into $folder"
    load "org.projectnessie.nessie:nessie-quarkus:$nessie:jar:runner"
fi
