"""Batches as an agent makes them, from a trace that was really written."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from mycroft.tracer import Recorder
from mycroft.tracer.agent.batch import Batch, BatchKey, encode, tables_of
from mycroft.tracer.agent.rings import Rings


def write_ops(recorder: Recorder, count: int, *, comm: str = "dp", rank: int = 0, size: int = 2) -> None:
    """Record `count` operations with one flow each."""
    group = recorder.comm(comm, rank=rank, size=size)
    for _ in range(count):
        op = group.start("all_reduce", size_bytes=1 << 20)
        flow = op.flow(peer=1 - rank, send=True, total=4)
        flow.reach(posted=4, ready=4, moved=4, done=4, size=1 << 20)
        flow.stop()
        op.end()
        recorder.tick()


def recorder(folder: Path, *, rank: int = 0, host: str = "host0") -> Recorder:
    """A recorder of a small ring."""
    folder.mkdir(exist_ok=True, mode=0o700)
    return Recorder(directory=folder, ring_mb=1, rank=rank, world_size=2, host=host, sampler=False)


def a_batch(folder: Path, *, ops: int = 20, host: str = "host0") -> Batch:
    """One batch of a ring with `ops` operations."""
    with recorder(folder, host=host) as writer:
        write_ops(writer, ops)
        turn = Rings((folder,), host=host).turn()
    return Batch(
        key=BatchKey(host=host, boot="boot", seq=1, made_ns=1, rows=turn.rows),
        rings=turn.rings,
        tables=tables_of(turn.parts),
        gaps=turn.gaps,
        agent="test",
    )


def numbered(batch: Batch, seq: int, *, host: str = "host0", boot: str = "boot", made_ns: int | None = None) -> bytes:
    """The bytes of a batch under another number; its rows are as if they came later in the ring."""
    import pyarrow as pa
    import pyarrow.compute as pc

    step = 1_000_000 * seq
    tables = {}
    for kind, table in batch.tables.items():
        column = pc.add(table.column("position"), pa.scalar(step, pa.uint64()))
        tables[kind] = table.set_column(
            table.schema.get_field_index("position"), table.schema.field("position"), column
        )
    key = BatchKey(
        host=host, boot=boot, seq=seq, made_ns=made_ns or 1_700_000_000_000_000_000 + seq, rows=batch.key.rows
    )
    rings = tuple(replace(ring, key=f"{ring.key}-{host}", next=ring.next + step) for ring in batch.rings)
    return encode(replace(batch, key=key, rings=rings, tables=tables))
