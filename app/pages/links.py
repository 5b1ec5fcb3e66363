"""Addresses of the pages of one trace, all pinned to the generation that is being read."""

from __future__ import annotations

from dataclasses import dataclass

from mycroft.app.urls import Address, build, path_of


@dataclass(frozen=True, slots=True)
class TraceLinks:
    """Builds addresses inside one trace; `generation` None means that the newest is to open."""

    trace: str
    generation: int | None = None

    def _to(self, page: str, **params: int | str) -> str:
        view = {} if self.generation is None else {"g": self.generation}
        return build(Address(page, {"trace": self.trace, **params}, dict(view)))

    def overview(self) -> str:
        """Return the address of the trace itself."""
        return self._to("overview")

    def incident(self, incident: str) -> str:
        """Return the address of one finding; `verdict` stands for the answer of a trace without findings."""
        return self._to("diagnosis", incident=incident)

    def op(self, comm: str, seq: int) -> str:
        """Return the address of one collective."""
        return self._to("op", comm=comm, seq=seq)

    def rank(self, rank: int) -> str:
        """Return the address of a global rank."""
        return self._to("rank", rank=rank)

    def comm(self, comm: str) -> str:
        """Return the address of a communicator."""
        return self._to("comm", comm=comm)

    def host(self, host: str) -> str:
        """Return the address of a host."""
        return self._to("host", host=host)

    def timeline(self) -> str:
        """Return the address of the timeline."""
        return self._to("timeline")

    def stacks(self) -> str:
        """Return the address of the stack grid."""
        return self._to("stacks")

    def links(self) -> str:
        """Return the address of the links between ranks or hosts."""
        return self._to("links")

    def sql(self) -> str:
        """Return the address of the SQL console."""
        return self._to("sql")

    def files(self) -> str:
        """Return the address of the list of evidence files."""
        return self._to("files")

    def file(self, file: int, line: int | None = None) -> str:
        """Return the address of a file of the evidence, at a line from 1."""
        return self._to("file", file=file) + (f"#L{line}" if line else "")


def traces() -> str:
    """Return the address of the list of traces."""
    return path_of("traces")


def compare(trace: str) -> str:
    """Return the address of a comparison with a trace, whose other side is to be chosen."""
    return build(Address("compare", {}, {"a": trace}))


def live() -> str:
    """Return the address of the jobs that are watched."""
    return path_of("live")


def fleet() -> str:
    """Return the address of what a fleet went through."""
    return path_of("fleet")


def job(job_id: str) -> str:
    """Return the address of an ingest job."""
    return path_of("job", job=job_id)
