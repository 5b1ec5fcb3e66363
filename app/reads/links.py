"""Links between ranks or hosts that any source measured."""

from __future__ import annotations

import msgspec

from mycroft.analysis.link_matrix import Matrix, has_links, read_matrices
from mycroft.app.queries import TraceReader
from mycroft.loaders.store import Store


def any_links(reader: TraceReader) -> bool:
    """Say whether there is a matrix to show."""
    return reader.cached("links", ("any",), lambda store: b"1" if has_links(store) else b"0") == b"1"


def matrices(reader: TraceReader) -> tuple[Matrix, ...]:
    """Return the matrix of ranks and that of hosts, as far as there are measurements."""

    def read(store: Store) -> bytes:
        return msgspec.msgpack.encode(read_matrices(store))

    return msgspec.msgpack.decode(reader.cached("links", ("matrices",), read), type=tuple[Matrix, ...])
