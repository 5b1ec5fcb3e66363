"""Types of the compiled module: a training job in virtual time."""

from typing import Any

START_UTC_NS: int

def fault_names() -> list[str]: ...

class Config:
    """The job; durations are nanoseconds in a quiet cluster."""

    tp: int
    pp: int
    dp: int
    ep: int
    ranks_per_host: int
    microbatches: int
    channels: int
    tree: bool
    forward_ns: float
    backward_ns: float
    tp_ns: float
    optimiser_ns: float
    dp_ns: float
    pair_ns: float
    expert_ns: float
    host_ns: float
    noise: float
    benign: bool
    checkpoint_every_s: float
    seed: int
    rows: bool
    interval_ns: float

    def __init__(self) -> None: ...

class Job:
    """A job that is being simulated."""

    def __init__(self, config: Config) -> None: ...
    def fork(self) -> Job: ...
    def fork_state(self) -> Job: ...
    def inject(self, fault: str, *, rank: int, at_ns: float, severity: float = ...) -> None:
        """Break something from `at_ns` on; further calls add further faults."""
    def run(self, iterations: int) -> None: ...
    def run_until(self, horizon_ns: float) -> None: ...
    @property
    def now_ns(self) -> float: ...
    @property
    def iteration_ns(self) -> list[float]: ...
    @property
    def row_count(self) -> int: ...
    @property
    def counts(self) -> dict[str, int]: ...
    def take_rows(self) -> dict[str, dict[str, Any]]: ...
