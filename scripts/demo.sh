#!/usr/bin/env bash
# A table through its life, on real rows: TPC-H lineitem (6,001,215 rows; DEMO_SCALE=0.1 for a tenth of them).
# Every line that starts with `$` is typed as shown. Everything is made below demo-data/.
set -euo pipefail
cd "$(dirname "$0")/.."
scale="${DEMO_SCALE:-1}"
mkdir -p demo-data
input="demo-data/tpch-$scale"
table=demo-data/lineitem
if [ ! -f "$input/lineitem.parquet" ]; then
  echo "making TPC-H lineitem at scale $scale (once)"
  tpchgen-cli parquet -s "$scale" --tables=lineitem --output-dir="$input" >/dev/null 2>&1
fi

say() { printf '\n\033[1m# %s\033[0m\n' "$1"; }
show() {
  printf '$ tblctl'
  for word in "$@"; do
    if [[ "$word" =~ ^[A-Za-z0-9_./:=,-]+$ ]]; then printf ' %s' "$word"; else printf ' "%s"' "$word"; fi
  done
  printf '\n'
  tblctl "$@"
}

tblctl drop "$table" --yes --if-exists >/dev/null

say "A table with lineitem's columns, clustered by ship date"
show create "$table" --like "$input/lineitem.parquet" --cluster-by "l_shipdate, l_orderkey" --set block_rows=100000
show append "$table" "$input/lineitem.parquet"
show files "$table" --limit 5

say "Statistics prune: a week of ship dates reads a few of the blocks"
show scan "$table" --where "l_shipdate between '1995-03-01' and '1995-03-07'" --explain
show scan "$table" --where "l_shipdate between '1995-03-01' and '1995-03-07' and l_shipmode in ('AIR', 'MAIL')" \
  --columns l_orderkey,l_shipdate,l_shipmode,l_extendedprice --limit 5

say "Change rows: blocks are replaced, rows never lost"
show tag "$table" loaded
show delete "$table" --where "l_shipdate < '1992-06-01'"
show update "$table" --set "l_tax = 0" --where "l_shipdate between '1995-03-01' and '1995-03-07'"
show alter "$table" --add-column "note: string"
show history "$table"

say "Time travel: the deleted rows, as of the tag"
show scan "$table" --as-of loaded --where "l_shipdate < '1992-01-05'" --columns l_orderkey,l_shipdate --limit 3
show scan "$table" --where "l_shipdate < '1992-01-05'" --columns l_orderkey,l_shipdate --limit 3

say "Collect what no kept snapshot needs, and check every rule of the format"
show tag "$table" loaded --delete
show gc "$table" --keep 1 --older-than 0
show history "$table"
show check "$table" --deep
