#!/usr/bin/env bash
# The demo: a table of TPC-H lineitem that grew by 60 batches, before and after a recluster.
# Every line that starts with `$` is a command as typed in demo-data/. SF is TPC-H's scale factor: 0.1 is 600,572 rows.
set -euo pipefail
scripts="$(cd "$(dirname "$0")" && pwd)"
mkdir -p "$scripts/../demo-data"
cd "$scripts/../demo-data"
scale="${SF:-0.1}"
input="tpch-$scale/lineitem.parquet"
block_rows="$(awk -v scale="$scale" 'BEGIN { printf "%d", 200000 * scale }')"
week="l_shipdate between '1995-03-01' and '1995-03-07'"
if [ ! -f "$input" ]; then
  echo "making TPC-H lineitem at scale $scale (once)"
  tpchgen-cli parquet -s "$scale" --tables=lineitem --output-dir="tpch-$scale" >/dev/null 2>&1
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
  mkdir -p "$1"
  tblctl info lineitem --json >"$1/info.json"
  tblctl scan lineitem --where "$week" --explain --json >"$1/scan.json"
}
newest() { # the number of the newest snapshot
  tblctl history lineitem --limit 1 --json | python -c 'import json, sys; print(json.load(sys.stdin)[0]["sequence"])'
}

tblctl drop lineitem --yes --if-exists >/dev/null

say "A table clustered by ship date, which grows by 60 batches in the order of orders"
show tblctl create lineitem --like "$input" --cluster-by l_shipdate --set "block_rows=$block_rows"
show python ../scripts/demo_ingest.py "$input" lineitem 60

say "Every batch holds every ship date, so a query for one week reads every block"
show tblctl info lineitem
show tblctl scan lineitem --where "$week" --explain
keep before
before="$(newest)"

say "What a recluster would do, and doing it"
show tblctl recluster lineitem --dry-run
show tblctl recluster lineitem --final

say "Now the same query reads what it needs"
show tblctl info lineitem --picture lineitem.html --compare "$before:$(newest)"
show tblctl scan lineitem --where "$week" --explain
keep after

say "Side by side"
python "$scripts/demo_report.py" .
printf '\nThe blocks before and after as a picture: %s\n' "$PWD/lineitem.html"
