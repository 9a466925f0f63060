#!/usr/bin/env bash
# Install Chromium for the tests of HTML pictures, unless it is installed.
#
# Installs Debian's package as root. On other systems install any Chromium or Chrome by hand.
set -euo pipefail

for name in chromium chromium-browser google-chrome; do
    if command -v "$name" >/dev/null; then
        echo "Chromium is there: $(command -v "$name")"
        exit 0
    fi
done
if ! command -v apt-get >/dev/null || [ "$(id -u)" != 0 ]; then
    echo "Chromium is missing, and only root on Debian can install it from here: install it by hand" >&2
    exit 1
fi
echo "installing Debian's chromium"
apt-get update -qq
DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends chromium fonts-dejavu-core >/dev/null
