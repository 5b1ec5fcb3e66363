"""Writes the verdicts of this folder: one for every variant of the diagnosis page.

They are invented, in the shape that the analysis hands over, so that a page can be tested for a case without a
trace that shows it. Run `python tests/data/verdicts/make_verdicts.py` after a change of the contract.
"""

from __future__ import annotations

from pathlib import Path

from mycroft.analysis.verdict import (
    Alternative,
    Collective,
    Evidence,
    EvidenceSummary,
    Finding,
    Flow,
    Link,
    RootCause,
    Unknown,
    Verdict,
    Vote,
)

HERE = Path(__file__).parent
ENGINE = "0.1.0/1"


def _summary(ranks: int, seen: int, files: int, **formats: int) -> EvidenceSummary:
    return EvidenceSummary(
        digest="sha256:" + "3f" * 32, files=files, formats=formats, ranks_expected=ranks, ranks_seen=seen
    )


def hang_root_cause() -> Verdict:
    """One rank waits in its data loader, 15 wait for it."""
    finding = Finding(
        id="f1",
        status="hang",
        category="dataloader",
        component="code",
        confidence="high",
        root_cause=RootCause(ranks=(5,), hosts=("hx-a03",)),
        summary="Rank 5 never entered all_reduce 1843: it waits inside its data loader",
        why="15 of 16 ranks entered all_reduce 1843 of default_pg and none finished it. Rank 5 enqueued 1842 and "
        "completed 1842; its main thread stands in the data loader.",
        confidence_why=(
            "the dump, the log and the stack of rank 5 say the same",
            "every other member entered the operation",
            "no rank is missing",
        ),
        collective=Collective("dp-3f", "default_pg", 1843, "all_reduce", (5,)),
        since="2026-03-02T04:11:09.120Z",
        victims=tuple(rank for rank in range(16) if rank != 5),
        chain=(Link(0, 5, "default_pg", 1843, "all_reduce", "dp-3f", "rank 5 has not entered it", ("e1", "e2")),),
        evidence=(
            Evidence(
                "e1",
                "15 ranks have all_reduce 1843 of default_pg, scheduled and not completed",
                table="coll_ops",
                key={"comm": "dp-3f", "op_seq": 1843},
                source="flight_recorder",
            ),
            Evidence(
                "e2",
                "rank 5: last enqueued 1842, last completed 1842",
                file="dumps/nccl_trace_rank_5",
                line=412,
                source="flight_recorder",
            ),
            Evidence(
                "e3",
                "main thread of rank 5 in torch/utils/data/dataloader.py, waiting for its workers",
                file="stacks/rank5.pyspy.txt",
                line=14,
                source="stack",
            ),
            Evidence(
                "e4",
                "watchdog of rank 0: all_reduce 1843 ran for 600,012 ms",
                file="logs/rank0/stderr.log",
                line=812,
                source="log",
            ),
        ),
        alternatives=(
            Alternative("link_fault", (2,), "the flap of mlx5_1 on hx-a01 ended two days before the stall"),
            Alternative("process_died", (5,), "rank 5 answered py-spy 40 s after the watchdog fired"),
        ),
        next_steps=(
            "py-spy dump --pid 7741   # on hx-a03",
            "ls -l /data/shards/train-0417 | head   # on hx-a03: does the mount answer?",
            "kill -TERM 7741   # on hx-a03, then restart from the last checkpoint",
        ),
        votes=(
            Vote("flight_recorder", (5,), ("hx-a03",), "rank 5 did not enter all_reduce 1843", True),
            Vote("stack", (5,), ("hx-a03",), "the only main thread that is not in a collective", True),
            Vote("log", (0,), ("hx-a01",), "rank 0 was the first whose watchdog fired", False),
            Vote("kernel_log", (), (), "nothing about hx-a03 in the hour before", None),
        ),
    )
    return Verdict(
        engine=ENGINE,
        evidence=_summary(16, 16, 34, flight_recorder=16, log=16, py_spy=2),
        status="hang",
        summary=finding.summary + ".",
        findings=(finding,),
    )


def slow_rank() -> Verdict:
    """No hang: one rank arrives late at every operation."""
    finding = Finding(
        id="f1",
        status="slow",
        category="slow_compute",
        component="gpu",
        confidence="medium",
        root_cause=RootCause(ranks=(2,), hosts=("hx-a01",), devices=("GPU 2",)),
        summary="Rank 2 is late: it enters every operation of its tensor-parallel group 6.5 ms after its peers",
        why="Median arrival 6.3 ms behind the group's median over 41 operations (next latest rank: 0.3 ms). Its own "
        "time inside the operations is the shortest of all: the others wait for it.",
        confidence_why=(
            "nothing tells the GPU from other load on the host: no clocks, no temperatures in the evidence",
            "the lag is the same at every step",
        ),
        collective=Collective("tp-7e84", "TENSOR_MODEL_PARALLEL_GROUP", 41, "all_reduce"),
        since="2026-03-02T04:02:40.000Z",
        victims=(0, 1, 3),
        evidence=(
            Evidence(
                "e1",
                "median arrival of rank 2 is 6.3 ms after the group's median, 41 operations",
                table="coll_ops",
                key={"comm": "tp-7e84", "rank": 2},
                source="flight_recorder",
            ),
        ),
        alternatives=(
            Alternative("network_congestion", (), "ranks 0-7 leave each operation within 0.4 ms of each other"),
        ),
        next_steps=(
            "nvidia-smi -q -d CLOCK,TEMPERATURE,PERFORMANCE -i 2   # on hx-a01",
            "top -b -n 1 | head -20   # on hx-a01: other load",
        ),
    )
    return Verdict(ENGINE, _summary(8, 8, 8, flight_recorder=8), "slow", finding.summary + ".", (finding,))


def several_suspects() -> Verdict:
    """A tie: one of two ranks, the evidence does not say which."""
    finding = Finding(
        id="f1",
        status="hang",
        category="size_mismatch",
        component="code",
        confidence="medium",
        root_cause=RootCause(ranks=(2, 6), hosts=("hx-a01", "hx-a02"), one_of=True),
        summary="Rank 2 or rank 6 passed the wrong size to all_gather 77 of tp-a1: 4,096 elements against 8,192",
        why="A group of two with one value each: neither is the majority. Both wait for the other since.",
        confidence_why=("two members, two values: the evidence cannot name the one", "both dumps are complete"),
        collective=Collective("tp-a1", "TENSOR_MODEL_PARALLEL_GROUP", 77, "all_gather"),
        since="2026-03-02T04:11:09.120Z",
        victims=(0, 1, 3, 4, 5, 7),
        chain=(
            Link(0, 2, "DATA_PARALLEL_GROUP", 12, "all_reduce", "dp-3f", "rank 2 has not entered it", ("e2",)),
            Link(2, 6, "TENSOR_MODEL_PARALLEL_GROUP", 77, "all_gather", "tp-a1", "sizes differ", ("e1",)),
        ),
        evidence=(
            Evidence(
                "e1",
                "rank 2 gathers 4,096 elements of bfloat16, rank 6 gathers 8,192",
                table="coll_ops",
                key={"comm": "tp-a1", "op_seq": 77},
                source="flight_recorder",
            ),
            Evidence(
                "e2",
                "rank 2: last enqueued 11 in dp-3f",
                file="dumps/nccl_trace_rank_2.json",
                line=98,
                source="flight_recorder",
            ),
        ),
        next_steps=(
            "sed -n 210,230p train/attention.py   # the line both stacks name",
            "TORCH_DISTRIBUTED_DEBUG=DETAIL torchrun …   # the next run says which rank differs",
        ),
    )
    return Verdict(
        ENGINE,
        _summary(8, 8, 9, flight_recorder=8, topology=1),
        "hang",
        finding.summary + ".",
        (finding,),
        (
            Unknown(
                "which of ranks 2 and 6 has the wrong shape", "the batch of each rank at step 412, or its input shapes"
            ),
        ),
    )


def cascade() -> Verdict:
    """Three groups wait for one another, the last of the chain is the culprit; and a second, independent fault."""
    chain = (
        Link(4, 6, "PIPELINE_MODEL_PARALLEL_GROUP", 61, "recv", "pp-22", "rank 6 has not sent", ("e1",)),
        Link(6, 7, "TENSOR_MODEL_PARALLEL_GROUP", 940, "all_reduce", "tp-b3", "rank 7 has not entered it", ("e2",)),
        Link(
            7,
            13,
            "DATA_PARALLEL_GROUP",
            1208,
            "reduce_scatter",
            "dp-9c",
            "rank 13 left after an exception",
            ("e3", "e4"),
        ),
    )
    first = Finding(
        id="f1",
        status="crash",
        category="exception",
        component="code",
        confidence="high",
        root_cause=RootCause(ranks=(13,), hosts=("hx-b07",)),
        summary="Rank 13 left with ValueError while 15 ranks wait for it over three groups",
        why="Pipeline waits for tensor, tensor waits for data parallel, and there rank 13 alone is missing: it raised "
        "ValueError (loss is nan) 2.1 s before the first rank stopped.",
        confidence_why=("the exception, the exit code and the dumps agree", "the chain ends at one rank"),
        collective=Collective("dp-9c", "DATA_PARALLEL_GROUP", 1208, "reduce_scatter", (13,)),
        since="2026-03-02T04:11:07.020Z",
        victims=tuple(rank for rank in range(16) if rank != 13),
        chain=chain,
        evidence=(
            Evidence(
                "e1",
                "recv 61 of rank 4 from rank 6 is open, rank 6 has no send 61",
                table="coll_ops",
                key={"comm": "pp-22", "op_seq": 61},
                source="flight_recorder",
            ),
            Evidence(
                "e2",
                "rank 7 is the only member of tp-b3 without all_reduce 940",
                table="coll_ops",
                key={"comm": "tp-b3", "op_seq": 940},
                source="flight_recorder",
            ),
            Evidence(
                "e3", "ValueError: loss is nan at step 412", file="logs/rank13/stderr.log", line=1204, source="log"
            ),
            Evidence("e4", "exit code 1 of local rank 5", file="logs/torchrun.log", line=88, source="log"),
        ),
        alternatives=(
            Alternative("absent", (6,), "rank 6 waits itself, in tp-b3"),
            Alternative("absent", (7,), "rank 7 waits itself, in dp-9c"),
        ),
        next_steps=(
            "sed -n 1180,1204p logs/rank13/stderr.log",
            "python -m train.check --resume 400 --steps 12   # on hx-b07: does the loss go to nan again?",
        ),
        votes=(
            Vote("flight_recorder", (13,), (), "rank 13 is the end of the chain", True),
            Vote("log", (13,), ("hx-b07",), "ValueError before anything else", True),
            Vote("launcher", (4,), ("hx-a01",), "torchrun names rank 4 as the first failure", False),
        ),
    )
    second = Finding(
        id="f2",
        status="slow",
        category="slow_nic",
        component="nic",
        confidence="low",
        root_cause=RootCause(
            ranks=(9,), hosts=("hx-b04",), devices=("mlx5_2",), flow=Flow(channel=3, peer=10, dir="send")
        ),
        summary="Rank 9 sends on channel 3 at a third of the rate of its peers",
        why="Independent of the crash: it was so in all 200 operations before.",
        confidence_why=("one source only",),
        collective=Collective("dp-9c", "DATA_PARALLEL_GROUP", 1100, "reduce_scatter"),
        since="2026-03-02T03:40:00.000Z",
        evidence=(Evidence("e1", "busbw 14 GB/s against 41 GB/s", file="logs/rank9/nccl.log", line=77, source="log"),),
        next_steps=("ibstat mlx5_2   # on hx-b04",),
    )
    return Verdict(
        ENGINE,
        _summary(16, 15, 40, flight_recorder=15, log=17),
        "crash",
        first.summary + ".",
        (first, second),
        (Unknown("rank 13 left no dump", "its dump, or a core file"),),
    )


def inconclusive() -> Verdict:
    """Nothing can be named; the page says what would decide it."""
    return Verdict(
        ENGINE,
        EvidenceSummary(
            "sha256:" + "07" * 32,
            6,
            {"flight_recorder": 4},
            8,
            4,
            (
                {"file": "core.7741", "why": "not a format that is read here"},
                {"file": "dumps/nccl_trace_rank_6", "why": "ends after 1,204 bytes, at a string of 80 bytes"},
            ),
        ),
        "cannot_tell",
        "Ranks 0-3 wait in all_reduce 310 of default_pg; four ranks left no dump, and any of them may be the cause.",
        (),
        (
            Unknown("ranks 4, 5, 6 and 7 left no dump", "Flight Recorder dumps or exit codes of ranks 4-7"),
            Unknown("no log says how the processes ended", "the launcher's console output"),
            Unknown("no stack of any rank", "py-spy dump of each rank while the job hangs"),
        ),
    )


def outside_trace() -> Verdict:
    """The one everybody waits for left no dump at all."""
    finding = Finding(
        id="f1",
        status="hang",
        category="absent",
        component="unknown",
        confidence="medium",
        root_cause=RootCause(ranks=(6,)),
        summary="Rank 6 left no dump and everybody waits for it in broadcast 12 of default_pg",
        why="7 of 8 ranks entered broadcast 12. Rank 6 is the only member without any file: what it did is unknown.",
        confidence_why=("all others wait for rank 6 and for nobody else", "nothing in the evidence comes from rank 6"),
        collective=Collective("world-00", "default_pg", 12, "broadcast", (6,)),
        victims=(0, 1, 2, 3, 4, 5, 7),
        chain=(Link(0, 6, "default_pg", 12, "broadcast", "world-00", "rank 6 left no dump", ("e1",)),),
        evidence=(
            Evidence(
                "e1",
                "ranks 0-5 and 7 have broadcast 12 open",
                table="coll_ops",
                key={"comm": "world-00", "op_seq": 12},
                source="flight_recorder",
            ),
        ),
        next_steps=(
            "dmesg -T | tail -50   # on the host of rank 6",
            "ls -l /tmp/nccl_trace_rank_6*   # on the host of rank 6",
        ),
    )
    return Verdict(
        ENGINE,
        _summary(8, 7, 7, flight_recorder=7),
        "hang",
        finding.summary + ".",
        (finding,),
        (
            Unknown("rank 6 left no dump", "Flight Recorder dump, exit code or console of rank 6"),
            Unknown("the host of rank 6 is not known", "any log line of rank 6, or the launcher's console"),
        ),
    )


def healthy() -> Verdict:
    """Nothing is wrong."""
    return Verdict(
        ENGINE,
        _summary(8, 8, 16, flight_recorder=8, log=8),
        "healthy",
        "Nothing is wrong: 8 ranks issued the same 4,812 operations in 5 groups and finished all of them.",
    )


def hostile() -> Verdict:
    """Texts that come from files can be anything: markup, very long names, directions of writing."""
    bad = '<img src=x onerror="window.__owned=1"><script>window.__owned=1</script>'
    long_name = "EXPERT_TENSOR_DATA_CONTEXT_PARALLEL_GROUP_" + "x" * 180
    finding = Finding(
        id="f1",
        status="hang",
        category="code_divergence",
        component="code",
        confidence="low",
        root_cause=RootCause(ranks=tuple(range(40)), hosts=(bad, "ho\u202est"), devices=(bad,)),
        summary=f"Ranks 0-39 {bad} issued another operation in {long_name}",
        why=bad + " " + "y" * 400,
        confidence_why=(bad,),
        collective=Collective("dp-3f", long_name, 2**53 - 1, bad, tuple(range(40))),
        since="2026-03-02T04:11:09.120Z",
        victims=tuple(range(40, 1024)),
        chain=tuple(Link(rank, rank + 1, long_name, rank, bad, "dp-3f", bad, ("e1",)) for rank in range(60, 72)),
        evidence=(
            Evidence("e1", bad, file="javascript:alert(1)", line=1, source=bad),
            Evidence("e2", long_name, file="../../etc/" + bad, line=2, source="log"),
        ),
        alternatives=(Alternative("unknown", (1,), bad),),
        next_steps=(bad, "echo '" + "z" * 300 + "'"),
        votes=(Vote(bad, (1,), (bad,), bad, None),),
    )
    return Verdict(
        ENGINE,
        _summary(1024, 1000, 1000, flight_recorder=1000),
        "hang",
        finding.summary,
        (finding,),
        (Unknown(bad, bad),),
    )


VARIANTS = (
    hang_root_cause,
    slow_rank,
    several_suspects,
    cascade,
    inconclusive,
    outside_trace,
    healthy,
    hostile,
)


def main() -> None:
    """Write every variant beside this file."""
    for variant in VARIANTS:
        (HERE / f"{variant.__name__}.json").write_text(variant().to_json() + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
