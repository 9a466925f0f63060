#!/usr/bin/env bash
# What a new user does first, on Parquet, Delta and Iceberg data made here: measure, bring it in, recluster, follow queries.
# Needs `tblctl` with the extras `delta` and `iceberg` in PATH, beside its `python`. Ends with the seconds of each part.
# Fails where a command does, or where a figure is not as it should be.
set -euo pipefail
folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
cd "$folder"
export HOME="$folder" PYICEBERG_CATALOG__LAKE__TYPE=sql PYICEBERG_CATALOG__LAKE__URI="sqlite:///$folder/lake.db"
export PYICEBERG_CATALOG__LAKE__WAREHOUSE="$folder/warehouse"
times=()
part() { # begin a part, and note how long the last one took
  now="$(date +%s%N)"
  if [ -n "${title:-}" ]; then times+=("$(printf '%6.1f s  %s' "$(python -c "print(($now - $began) / 1e9)")" "$title")"); fi
  title="$1" began="$now"
  printf '\n\033[1m# %s\033[0m\n' "$title"
}
run() { printf '$ %s\n' "$*"; "$@"; }
value() { # of the JSON on standard input: value 'x["depth"]["mean"]'
  python -c 'import json, sys; x = json.load(sys.stdin); print(eval(sys.argv[1]))' "$1"
}
require() { # require WHAT LEFT OPERATOR RIGHT, numbers
  python -c 'import sys; left, op, right = float(sys.argv[2]), sys.argv[3], float(sys.argv[4])
ok = {"<": left < right, ">": left > right, "==": left == right}[op]
sys.exit(0 if ok else f"{sys.argv[1]}: expected {left} {op} {right}")' "$@"
}

part "make data: 300,000 rows as Parquet folders by country, a Delta table, an Iceberg table"
python - <<'PY'
import os
import numpy as np, pyarrow as pa, pyarrow.parquet as pq
from deltalake import write_deltalake
from pyiceberg.catalog import load_catalog

rng = np.random.default_rng(7)
os.makedirs("warehouse")
catalog = load_catalog("lake")
catalog.create_namespace("shop")
iceberg = None
for number in range(30):
    rows = 10_000
    table = pa.table({
        "at": pa.array(rng.integers(1_700_000_000, 1_731_000_000, rows) * 1_000_000, pa.timestamp("us")),
        "customer": np.minimum(rng.zipf(1.3, rows), 50_000),
        "amount": rng.exponential(30.0, rows).round(2),
    })
    place = f"events/country={('DE', 'FR', 'US')[number % 3]}"
    os.makedirs(place, exist_ok=True)
    pq.write_table(table, f"{place}/part-{number}.parquet")
    write_deltalake("delta", table, mode="append")
    if iceberg is None:
        iceberg = catalog.create_table("shop.events", schema=table.schema)
    iceberg.append(table)
PY

part "what are these files worth? (nothing is written)"
run tblctl info events/ --columns at
run tblctl suggest events/
run tblctl info delta:delta --columns at
run tblctl info iceberg://lake/shop.events --columns at

part "bring them in, and cluster them"
run tblctl create table --like events/country=DE/part-0.parquet --cluster-by at --set block_rows=10000
run tblctl alter table --add-column "country: string"
run tblctl import events/ table --hive --commit-every 100KB
run tblctl import events/ table --hive
run tblctl recluster table --dry-run --policy full
run tblctl recluster table --final
require "depth after the recluster" "$(tblctl info table --json | value 'x["average_depth"]')" "<" 2.1
require "rows of the table" "$(tblctl info table --json | value 'x["rows"]')" "==" 300000
require "blocks that a day reads" \
  "$(tblctl scan table --where "at >= '2024-03-01' and at < '2024-03-02'" --explain --json | value 'x["blocks_read"]')" "<" 4

part "an Iceberg table stays one, and is clustered in place"
run tblctl recluster iceberg://lake/shop.events --cluster-by at --policy full
require "depth of the Iceberg table" "$(tblctl info iceberg://lake/shop.events --columns at --json | value 'x["average_depth"]')" "<" 3.1
require "rows that PyIceberg reads" \
  "$(python -c 'from pyiceberg.catalog import load_catalog; print(load_catalog("lake").load_table("shop.events").scan().to_arrow().num_rows)')" "==" 300000

part "follow what queries ask"
run tblctl alter table --set recluster.record=on
for customer in 3 17 99 250 1200 9000; do
  for _ in 1 2 3 4; do tblctl scan table --where "customer between $customer and $((customer + 5))" --columns customer,amount --limit 1000000 --json >/dev/null; done
done
run tblctl workload table
run tblctl suggest table
run tblctl recluster table --policy workload --alpha 0.5 --dry-run
run tblctl recluster table --policy workload --alpha 0.5
require "rows after all" "$(tblctl info table --json | value 'x["rows"]')" "==" 300000
run tblctl check table --deep
run tblctl export table out --where "customer < 3" --columns at,customer
part "done"
printf '%s\n' "${times[@]}"
