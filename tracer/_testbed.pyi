"""Types of the compiled module: collectives with NCCL's shape over TCP."""

from collections.abc import Sequence

class Buffer:
    """Floats that an engine reads and writes; supports the buffer protocol."""

    def __init__(self, count: int) -> None: ...
    def __len__(self) -> int: ...
    def __buffer__(self, flags: int, /) -> memoryview: ...
    def fill(self, start: float, step: float = ...) -> None: ...
    def differences(self, start: float, step: float, first: int, count: int) -> int: ...

class Communicator:
    """One communicator as its engine knows it."""

    @property
    def name(self) -> str: ...
    @property
    def rank(self) -> int: ...
    @property
    def size(self) -> int: ...

class Engine:
    """One rank: a GPU thread and a proxy thread behind a queue of operations."""

    def __init__(
        self,
        *,
        rank: int,
        address: str = ...,
        plugin: str = ...,
        abi: int = ...,
        slot_bytes: int = ...,
        direct_in_host: bool = ...,
    ) -> None: ...
    @property
    def port(self) -> int: ...
    @property
    def error(self) -> str: ...
    @property
    def totals(self) -> dict[str, int]: ...
    def set_condition(self, name: str, value: float) -> None: ...
    def open(
        self,
        name: str,
        *,
        hash_: int,
        rank: int,
        members: Sequence[tuple[str, int, str]],
        channels: int = ...,
        connections: int = ...,
    ) -> Communicator: ...
    def close(self, comm: Communicator) -> None: ...
    def enqueue(
        self,
        comm: Communicator,
        kind: str,
        input: Buffer,  # noqa: A002
        output: Buffer,
        *,
        elements: int,
        algo: str = ...,
        peer: int = ...,
        stream: int = ...,
    ) -> int: ...
    def compute(self, *, work: int, hold_ns: int = ..., stream: int = ...) -> int: ...
    def wait(self, operation: int, timeout_ns: int) -> bool: ...
    def drain(self, timeout_ns: int) -> bool: ...
    def shut_down(self) -> None: ...

def programs(
    kind: str, algo: str, rank: int, ranks: int, channels: int, peer: int, elements: int, slot_bytes: int
) -> list[tuple[int, int, bool, int]]: ...
