#!/usr/bin/env bash
# Install PostgreSQL for the tests of Iceberg catalogs, unless it is installed.
#
# Installs Debian's package as root. On other systems install any PostgreSQL by hand. Tests start a server of their own.
set -euo pipefail

for program in $(command -v initdb) /usr/lib/postgresql/*/bin/initdb; do
    if [ -x "$program" ]; then
        echo "PostgreSQL is there: $program"
        exit 0
    fi
done
if ! command -v apt-get >/dev/null || [ "$(id -u)" != 0 ]; then
    echo "PostgreSQL is missing, and only root on Debian can install it from here: install it by hand" >&2
    exit 1
fi
echo "installing Debian's postgresql"
apt-get update -qq
DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends postgresql >/dev/null
