"""pyarrow, without its types: the stubs it ships (26) lack most of what its classes can do."""

from __future__ import annotations

from typing import Any

import pyarrow
import pyarrow.compute as pyarrow_compute
import pyarrow.ipc as pyarrow_ipc
import pyarrow.parquet as pyarrow_parquet

pa: Any = pyarrow
pc: Any = pyarrow_compute
ipc: Any = pyarrow_ipc
pq: Any = pyarrow_parquet

Table = Any
RecordBatch = Any
Schema = Any
