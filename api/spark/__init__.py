"""Tables as a data source of Spark 4.1 or newer, on classic and Connect sessions.

    import tblctl.spark

    tblctl.spark.register(spark)
    spark.read.format("tblctl").option("where", "l_shipdate >= '1995-01-01'").load("s3://warehouse/lineitem")
    frame.write.format("tblctl").mode("append").save("s3://warehouse/lineitem")
    frame.writeStream.format("tblctl").option("checkpointLocation", there).start("s3://warehouse/lineitem")

Python processes beside Spark's driver plan and commit; executors read and write.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ["register"]


def register(session: Any, storage_options: Mapping[str, Any] | None = None) -> None:
    """Make `format("tblctl")` known to a session. A second call replaces the storage options.

    The call adds tblctl's code to the session's Python files, so neither workers nor a Connect server need it
    installed.

    Spark 4.1 mixes up the filters of several queries of one frame. There, use the option `where` to read fewer rows.
    Later versions are tested with three small jobs. If they keep the filters of queries apart, this sets
    `spark.sql.python.filterPushdown.enabled` to true in the session, and the filters of queries reach the table.

    Args:
        session: a session of pyspark, classic or Connect.
        storage_options: options of the fsspec filesystem, secrets included. Unlike the options of a reader or writer,
            they appear in no plan, log or UI of Spark.

    Raises:
        EngineError: the session does not work or is older than 4.1, or its workers lack a library.
    """
    from tblctl.spark.sessions import register_source
    from tblctl.tableformat.storage import Storage

    register_source(session, "tblctl", Storage("/", storage_options))
