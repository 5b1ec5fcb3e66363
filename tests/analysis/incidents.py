"""Small incidents as text, for tests of the rules over what NCCL, the kernel and the machines say."""

# Log lines are as long as they are.
# ruff: noqa: E501

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path

from mycroft.analysis.diagnosis import diagnose
from mycroft.analysis.verdict import Verdict
from tests.loaders.sources import loaded

BUSES = ("1b000", "43000", "52000", "9d000")
START = "2026-03-03T02:"


def verdict_of(folder: Path, contents: Mapping[str, str | bytes]) -> Verdict:
    """Load the files and judge them."""
    with loaded(folder, contents) as store:
        return diagnose(store)


def named(verdict: Verdict) -> tuple[str, str, tuple[int, ...], tuple[str, ...]]:
    """Return category, confidence, ranks and hosts of the first finding."""
    if not verdict.findings:
        return verdict.status, "", (), ()
    first = verdict.findings[0]
    return first.category, first.confidence, tuple(first.root_cause.ranks), tuple(first.root_cause.hosts)


def host_of(rank: int, per_host: int = 2) -> str:
    return f"n{rank // per_host}"


def pid_of(rank: int) -> int:
    return 1000 + rank


def nccl(rank: int, text: str, *, level: str = "INFO", per_host: int = 2, stamp: str = "") -> str:
    """One line of a rank's NCCL log; a warning begins with an empty line and may have a time."""
    writer = f"{host_of(rank, per_host)}:{pid_of(rank)}:{pid_of(rank) + 50} [{rank % per_host}] "
    if level == "WARN":
        return f"\n{f'[{stamp}] ' if stamp else ''}{writer}transport/net_ib.cc:95 NCCL WARN {text}\n"
    return f"{writer}NCCL INFO {text}\n"


def start_up(size: int, per_host: int = 2, *, complete: bool = True) -> str:
    """What every rank prints when it starts, NCCL 2.21."""
    out = ""
    for rank in range(size):
        comm = f"comm 0x7f{rank:x}0 rank {rank} nranks {size} cudaDev {rank % per_host} nvmlDev {rank % per_host} busId {BUSES[rank % per_host]} commId 0xab12"
        out += nccl(rank, f"Bootstrap : Using eth0:10.0.0.{rank // per_host + 1}<0>", per_host=per_host)
        out += nccl(
            rank,
            f"NET/IB : Using [0]mlx5_0:1/IB [1]mlx5_1:1/IB ; OOB eth0:10.0.0.{rank // per_host + 1}<0>",
            per_host=per_host,
        )
        out += nccl(rank, f"ncclCommInitRank {comm} - Init START", per_host=per_host)
        if complete:
            out += nccl(rank, f"ncclCommInitRank {comm} - Init COMPLETE", per_host=per_host)
    return out


def call(
    rank: int, number: int, *, op: str = "AllReduce", count: int = 1000, comm: str | None = None, per_host: int = 2
) -> str:
    """A collective call as NCCL lists it; `comm` is a pointer, by default that of the world."""
    pointer = comm or f"0x7f{rank:x}0"
    text = f"{op}: opCount {number:x} sendbuff 0x1 recvbuff 0x2 count {count} datatype 7 op 0 root 0 comm {pointer} [nranks=8] stream 0x3"
    return nccl(rank, text, per_host=per_host)


def failed_transfer(
    rank: int, peer_host: int, *, code: int = 12, stamp: str = "2026-03-03 02:17:05", hca: str = "mlx5_1"
) -> str:
    """An error completion that a rank reports of a host."""
    text = f"NET/IB : Got completion from peer 10.0.0.{peer_host + 1}<50000> with status={code} opcode=0 len=0 vendor err 129 (Send) localGid ::ffff:10.0.0.{rank // 2 + 1} remoteGids::ffff:10.0.0.{peer_host + 1} hca {hca}"
    return nccl(rank, text, level="WARN", stamp=stamp)


def kernel(host: str, clock: str, text: str) -> str:
    """One line of a journal with a full time."""
    return f"{START}{clock}.000000+00:00 {host} kernel: [12345.678901] {text}\n"


def timed_out(rank: int, *, seq: int = 900, op: str = "ALLREDUCE", numel: int = 1000, clock: str = "27:05") -> str:
    """What torch's watchdog prints of an operation that does not end; it was called ten minutes before."""
    return (
        f"[rank{rank}]:[E303 02:{clock}.000000000 ProcessGroupNCCL.cpp:616] [Rank {rank}] Watchdog caught collective operation "
        f"timeout: WorkNCCL(SeqNum={seq}, OpType={op}, NumelIn={numel}, NumelOut={numel}, Timeout(ms)=600000) ran for "
        "600010 milliseconds before timing out.\n"
    )


def status(rank: int, *, enqueued: int, completed: int, seq: int = 900, clock: str = "27:05", group: str = "0") -> str:
    """How far a rank says it has come."""
    return (
        f"[rank{rank}]:[E303 02:{clock}.100000000 ProcessGroupNCCL.cpp:1785] [PG ID {group} PG GUID {group} Rank {rank}] Exception "
        f"(either an error or timeout) detected by watchdog at work: {seq}, last enqueued NCCL work: {enqueued}, "
        f"last completed NCCL work: {completed}.\n"
    )


def inspector(size: int, ops: int, time_us: Callable[[int, int], int], *, per_host: int = 2) -> dict[str, str]:
    """One file per rank of Inspector records; `time_us` gives the time of (rank, operation)."""
    files: dict[str, str] = {}
    for rank in range(size):
        lines: list[str] = []
        for sn in range(ops):
            lines.append(
                json.dumps(
                    {
                        "header": {"id": "0xab12", "rank": rank, "n_ranks": size, "nnodes": size // per_host},
                        "metadata": {
                            "inspector_output_format_version": "v4.0",
                            "dump_timestamp_us": 1_772_504_000_000_000 + sn,
                            "hostname": host_of(rank, per_host),
                            "pid": pid_of(rank),
                        },
                        "coll_perf": {
                            "coll": "AllReduce",
                            "coll_sn": 100 + sn,
                            "coll_msg_size_bytes": 1 << 26,
                            "coll_exec_time_us": time_us(rank, sn),
                            "coll_busbw_gbs": 1.0,
                        },
                    }
                )
            )
        files[f"{host_of(rank, per_host)}-pid{pid_of(rank)}.log"] = "\n".join(lines) + "\n"
    return files


def smi(gpus: Mapping[str, Mapping[str, object]]) -> str:
    """`nvidia-smi -q`, shortened: address -> facts."""
    out = "==============NVSMI LOG==============\n\nTimestamp                                 : Tue Mar  3 02:17:05 2026\n"
    for number, (address, facts) in enumerate(gpus.items()):
        active = "Active" if facts.get("hot") else "Not Active"
        out += (
            f"GPU 00000000:{address}\n    Minor Number                          : {number}\n"
            f"    Clocks Event Reasons\n        HW Thermal Slowdown               : {active}\n"
            f"    Temperature\n        GPU Current Temp                  : {facts.get('temperature', 60)} C\n"
            f"    Clocks\n        SM                                : {facts.get('clock', 1980)} MHz\n"
        )
    return out


def bench(hosts: tuple[str, str], gbs: float, *, wrong: int = 0) -> str:
    """A table of all_reduce_perf over two hosts."""
    out = "# nThread 1 nGpus 1 minBytes 67108864 maxBytes 134217728 step: 2(factor) warmup iters: 5 iters: 20 agg iters: 1 validation: 1 graph: 0\n"
    for rank, host in enumerate(hosts):
        out += f"#  Rank  {rank} Group  0 Pid   {5000 + rank} on {host:>10} device  0 [0000:1b:00] NVIDIA H100\n"
    for size in (1 << 26, 1 << 27):
        out += f"   {size}   {size // 4}     float     sum      -1    857.6  {gbs:.2f}  {gbs:.2f}      {wrong}    819.6  {gbs:.2f}  {gbs:.2f}      0\n"
    return (
        out
        + f"# Out of bounds values : {int(wrong > 0)} {'FAILED' if wrong else 'OK'}\n# Avg bus bandwidth    : {gbs}\n"
    )


def ras(counts: Mapping[int, int], *, date: str = "02:17:05", listed: tuple[int, ...] | None = None) -> str:
    """A RAS report: rank -> operations launched; the ranks of the smaller groups are listed."""
    by_count: dict[int, list[int]] = {}
    for rank, count in counts.items():
        by_count.setdefault(count, []).append(rank)
    size = len(counts)
    verdict = "OK" if len(by_count) == 1 else "MISMATCH"
    out = (
        f"$ date; ncclras\nTue Mar  3 {date} UTC 2026\nNCCL version 2.26.2 compiled with CUDA 12.6\n\nJob summary\n===========\n\n"
        "Communicators... (0.00s)\n=============\n\nGroup     Comms     Nodes     Ranks     Ranks     Ranks    Status  Errors\n"
        "    #  in group  per comm  per node  per comm  in group\n"
        f"    0         1  {size // 2:8}         2  {size:8}  {size:8}   RUNNING  {verdict}\n\nErrors\n======\n\nWarnings\n========\n\n"
    )
    if len(by_count) > 1:
        out += "#0-0 (000000000000ab12) MISMATCH\n  Communicator ranks have different AllReduce operation counts\n"
        most = max(by_count, key=lambda count: len(by_count[count]))
        for count, ranks in sorted(by_count.items(), key=lambda item: -len(item[1])):
            small = count != most and len(ranks) * 4 <= size
            if len(ranks) == 1 and small:
                out += f"  Rank {ranks[0]} has launched up to operation {count} -- GPU {ranks[0] % 2} managed by process {pid_of(ranks[0])} on node {host_of(ranks[0])}\n"
                continue
            out += f"  {len(ranks)} ranks have launched up to operation {count}\n"
            for rank in ranks if small else ():
                out += f"  Rank {rank} -- GPU {rank % 2} managed by process {pid_of(rank)} on node {host_of(rank)}\n"
    return out + "\n"
