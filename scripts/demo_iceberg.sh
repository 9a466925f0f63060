#!/usr/bin/env bash
# The demo on Iceberg: a table that PyIceberg wrote in 60 commits, before and after a recluster by tblctl.
# Its catalog is an SQLite file in demo-data/. Its files lie beside it, or on a MinIO server where one is installed.
# BATCHES says in how many commits the table grows (60).
# Every line that starts with `$` is a command as typed in demo-data/. SF is TPC-H's scale factor: 0.1 is 600,572 rows.
set -euo pipefail
scripts="$(cd "$(dirname "$0")" && pwd)"
mkdir -p "$scripts/../demo-data"
cd "$scripts/../demo-data"
scale="${SF:-0.1}"
input="tpch-$scale/lineitem.parquet"
batches="${BATCHES:-60}"
week="l_shipdate >= '1995-03-01' and l_shipdate <= '1995-03-07'"
table="iceberg://demo/tpch.lineitem"
if [ ! -f "$input" ]; then
  echo "making TPC-H lineitem at scale $scale (once)"
  tpchgen-cli parquet -s "$scale" --tables=lineitem --output-dir="tpch-$scale" >/dev/null 2>&1
fi

rm -rf iceberg && mkdir -p iceberg
export PYICEBERG_CATALOG__DEMO__TYPE=sql
export PYICEBERG_CATALOG__DEMO__URI="sqlite:///$PWD/iceberg/catalog.db"
export PYICEBERG_CATALOG__DEMO__WAREHOUSE="$PWD/iceberg"
python -c 'from pyiceberg.catalog import load_catalog; load_catalog("demo")'  # makes the database
minio="${XDG_CACHE_HOME:-$HOME/.cache}/tblctl/bin/minio"
if [ -x "$minio" ]; then
  port="$(python -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')"
  mkdir -p iceberg/minio/lake
  MINIO_ROOT_USER=demouser MINIO_ROOT_PASSWORD=demopassword \
    "$minio" server iceberg/minio --address "127.0.0.1:$port" --quiet >iceberg/minio.log 2>&1 &
  trap 'kill %1' EXIT
  export PYICEBERG_CATALOG__DEMO__WAREHOUSE=s3://lake/tables
  export PYICEBERG_CATALOG__DEMO__S3__ENDPOINT="http://127.0.0.1:$port"
  export PYICEBERG_CATALOG__DEMO__S3__ACCESS_KEY_ID=demouser
  export PYICEBERG_CATALOG__DEMO__S3__SECRET_ACCESS_KEY=demopassword
  export PYICEBERG_CATALOG__DEMO__S3__REGION=us-east-1
  for _ in $(seq 100); do
    python - "$port" <<'PY' && break || sleep 0.1
import socket, sys
sys.exit(socket.socket().connect_ex(("127.0.0.1", int(sys.argv[1]))))
PY
  done
fi

say() { printf '\n\033[1m# %s\033[0m\n' "$1"; }
show() {
  printf '$'
  for word in "$@"; do
    if [[ "$word" =~ ^[A-Za-z0-9_./:=,-]+$ ]]; then printf ' %s' "$word"; else printf ' "%s"' "$word"; fi
  done
  printf '\n'
  "$@"
}
keep() { # keep the JSON of the commands for the comparison at the end
  mkdir -p "iceberg/$1"
  tblctl info "$table" --json >"iceberg/$1/info.json"
  python "$scripts/demo_iceberg.py" query "$week" >"iceberg/$1/scan.json"
}
newest() { tblctl history "$table" --limit 1 --json | python -c 'import json, sys; print(json.load(sys.stdin)[0]["sequence"])'; }

say "PyIceberg makes a table sorted by ship date, which grows by $batches commits in the order of orders"
show python ../scripts/demo_iceberg.py fill "$input" "$batches"

say "Every file holds every ship date: Iceberg's rewrite_data_files would find nothing to do but join small ones"
show tblctl info "$table"
keep before
before="$(newest)"

say "What a recluster would do, and doing it: a REPLACE snapshot, beside all other writers"
show tblctl recluster "$table" --dry-run
show tblctl recluster "$table" --final

say "Now a query for one week reads what it needs, with any engine"
show tblctl info "$table" --picture lineitem_iceberg.html --compare "$before:$(newest)"
keep after

say "Side by side: blocks are Parquet files, and PyIceberg plans the query for one week"
python "$scripts/demo_report.py" iceberg
printf '\nThe files before and after as a picture: %s\n' "$PWD/lineitem_iceberg.html"
