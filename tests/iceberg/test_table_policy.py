"""The property `tblctl.recluster.policy`: the policy of plans and reclusters that name none."""

from __future__ import annotations

import pyarrow as pa

import tblctl

from .lake import Lake

POLICY = "tblctl.recluster.policy"


def test_a_plan_and_a_recluster_that_name_no_policy_are_the_tables(lake: Lake) -> None:
    made = lake.catalog.create_table("db.t", pa.schema([("k", pa.int64())]), properties={POLICY: "full"})
    for start in range(4):
        made.append(pa.table({"k": list(range(start, 40, 4))}))
    table = tblctl.from_iceberg(made)
    assert table.plan(cluster_by="k").policy == "full"
    assert table.plan("levels", cluster_by="k").policy == "levels"
    outcome = table.recluster(cluster_by="k")
    assert (outcome.policy, outcome.committed_groups) == ("full", 1)
