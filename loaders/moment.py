"""The SQL of a trace as it was at a moment: the rows that had been written by then.

The tables have the same names in a schema of their own, so that every query of the analysis reads them unchanged; the
moment is a variable of the connection that asks.
"""

from __future__ import annotations

from typing import Final

# Operations that ended later are still open.
TIMED: Final = """
CREATE SCHEMA moment;
CREATE VIEW moment.coll_ops AS
SELECT * REPLACE (
    CASE WHEN kstart_ts > make_timestamp_ns(getvariable('at_ns')) THEN enq_ts ELSE start_ts END AS start_ts,
    CASE WHEN kstart_ts > make_timestamp_ns(getvariable('at_ns')) THEN NULL ELSE kstart_ts END AS kstart_ts,
    CASE WHEN epoch_ns(start_ts) + dur_ns > getvariable('at_ns') THEN NULL ELSE dur_ns END AS dur_ns,
    CASE WHEN epoch_ns(start_ts) + dur_ns > getvariable('at_ns') THEN 'scheduled' ELSE state END AS state
)
FROM main.coll_ops
WHERE coalesce(enq_ts, start_ts) <= make_timestamp_ns(getvariable('at_ns'));
CREATE VIEW moment.flow_ops AS
FROM main.flow_ops
WHERE end_ts <= make_timestamp_ns(getvariable('at_ns'));
CREATE VIEW moment.flow_state AS
FROM main.flow_state
WHERE ts <= make_timestamp_ns(getvariable('at_ns'));
CREATE VIEW moment.heartbeat AS
FROM main.heartbeat
WHERE ts <= make_timestamp_ns(getvariable('at_ns'));
CREATE VIEW moment.group_status AS
FROM main.group_status
WHERE ts <= make_timestamp_ns(getvariable('at_ns'));
CREATE VIEW moment.events AS
FROM main.events
WHERE ts IS NULL OR ts <= make_timestamp_ns(getvariable('at_ns'));
CREATE VIEW moment.stacks AS
FROM main.stacks
WHERE ts IS NULL OR ts <= make_timestamp_ns(getvariable('at_ns'));
"""
# Tables without a time of their own are the same at any moment.
REST: Final = "CREATE VIEW moment.{0} AS FROM main.{0}"
VIEWS: Final = "SELECT view_name FROM duckdb_views() WHERE schema_name = 'moment'"
SET_TIME: Final = "SET VARIABLE at_ns = CAST(? AS BIGINT)"
