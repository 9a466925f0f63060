"""Tables as a data source of Spark's, version 4.1 or newer, on classic and Connect sessions.

    import tblctl.spark

    tblctl.spark.register(spark)
    spark.read.format("tblctl").option("where", "l_shipdate >= '1995-01-01'").load("s3://warehouse/lineitem")
    frame.write.format("tblctl").mode("append").save("s3://warehouse/lineitem")
    frame.writeStream.format("tblctl").option("checkpointLocation", there).start("s3://warehouse/lineitem")

Planning and committing happen in Python processes beside Spark's driver, reading and writing on its executors.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ["register"]


def register(session: Any, storage_options: Mapping[str, Any] | None = None) -> None:
    """Make `format("tblctl")` known to a session; a second time, with other storage options.

    tblctl's code joins the session's Python files, so that neither workers nor a Connect server need it installed.

    Spark 4.1 mixes up the filters of several queries of one frame: there the option `where` says which rows are needed.
    A later one is asked, with three small jobs, whether it still does. If not, one of the session's settings changes:
    `spark.sql.python.filterPushdown.enabled` becomes true, and queries' filters reach the table.

    Args:
        session: pyspark's, classic or Connect.
        storage_options: what the fsspec filesystem takes, secrets included: here they are in no plan, log or UI of
            Spark's, as options of a reader or a writer would be.

    Raises:
        EngineError: the session does not work, is older than 4.1, or its workers lack something.
    """
    from tblctl.spark.sessions import register_source
    from tblctl.tableformat.storage import Storage

    register_source(session, "tblctl", Storage("/", storage_options))
