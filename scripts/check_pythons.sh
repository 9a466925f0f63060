#!/usr/bin/env bash
# check_pythons.sh WHEEL: install the wheel with its dependencies on every other Python from 3.12 to 3.14 that this machine
# has, in PATH or of pyenv, and try it. Says which were not found.
set -euo pipefail
wheel="$1"
folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
for version in 3.12 3.13 3.14; do
  found=""
  for python in "python$version" "${PYENV_ROOT:-${HOME:-}/.pyenv}/versions/$version".*/bin/python; do
    if "$python" -c 'import venv, ensurepip' 2>/dev/null; then found="$python"; break; fi
  done
  if [ -z "$found" ]; then echo "Python $version: not on this machine"; continue; fi
  "$found" -m venv "$folder/$version"
  "$folder/$version/bin/pip" install --quiet --disable-pip-version-check --constraint tests/constraints.txt "$wheel"
  printf 'Python %s: ' "$version"
  "$folder/$version/bin/python" scripts/check_wheel.py | tail -1
done
