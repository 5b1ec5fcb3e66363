"""One rule, one test: what links, GPUs, RAS, profilers, counters, benchmarks and watchdogs make of a job."""

from __future__ import annotations

from pathlib import Path

import pytest

from mycroft.analysis.claims_init import subnet
from tests.analysis import incidents as make
from tests.analysis.incidents import named, verdict_of

UP = make.start_up(8)


# -- links --------------------------------------------------------------------------------------------------------


def star(centre: int = 2) -> str:
    """Every other host reports that it cannot reach one host."""
    return "".join(make.failed_transfer(2 * host, centre) for host in range(4) if host != centre)


def test_the_host_at_all_ends_with_a_fault_of_its_own(tmp_path: Path) -> None:
    own = make.nccl(4, "NET/IB : mlx5_1:1 Got async error event: port error", level="WARN", stamp="2026-03-03 02:17:00")
    verdict = verdict_of(tmp_path, {"nccl.log": UP + own + star()})
    assert named(verdict) == ("link_fault", "high", (), ("n2",))
    assert verdict.findings[0].root_cause.devices == ("mlx5_1",)


def test_the_kernel_s_word_counts_like_nccl_s(tmp_path: Path) -> None:
    down = make.kernel("n2", "17:00", "mlx5_core 0000:c3:00.0 mlx5_1: Port: 1 Link DOWN")
    verdict = verdict_of(tmp_path, {"nccl.log": UP + star(), "journal-n2.txt": down})
    assert named(verdict) == ("link_fault", "high", (), ("n2",))


def test_the_host_at_all_ends_alone_is_less_sure(tmp_path: Path) -> None:
    assert named(verdict_of(tmp_path, {"nccl.log": UP + star()})) == ("link_fault", "medium", (), ("n2",))


def test_two_hosts_that_accuse_each_other(tmp_path: Path) -> None:
    text = UP + make.failed_transfer(0, 2) + make.failed_transfer(4, 0)
    verdict = verdict_of(tmp_path, {"nccl.log": text})
    assert named(verdict) == ("link_fault", "low", (), ("n0", "n2"))
    assert verdict.findings[0].root_cause.one_of


def test_a_link_that_came_back_long_ago_is_background(tmp_path: Path) -> None:
    flap = "".join(
        f"2026-03-02T20:00:0{i}+00:00 n1 kernel: mlx5_core 0000:c3:00.0 mlx5_1: Port: 1 Link {state}\n"
        for i, state in ((0, "DOWN"), (9, "ACTIVE"))
    )
    verdict = verdict_of(tmp_path, {"nccl.log": UP + star(), "journal-n1.txt": flap})
    assert named(verdict)[3] == ("n2",)


def test_a_link_that_is_up_again_is_no_finding_by_itself(tmp_path: Path) -> None:
    down = make.kernel("n1", "17:00", "mlx5_core 0000:c3:00.0 mlx5_1: Port: 1 Link DOWN")
    up = make.kernel("n1", "17:09", "mlx5_core 0000:c3:00.0 mlx5_1: Port: 1 Link ACTIVE")
    assert named(verdict_of(tmp_path / "1", {"journal-n1.txt": down}))[0] == "link_fault"
    assert not verdict_of(tmp_path / "2", {"journal-n1.txt": down + up}).findings


def test_flushed_transfers_accuse_nobody(tmp_path: Path) -> None:
    flushed = "".join(make.failed_transfer(2 * host, 0, code=5) for host in (1, 2, 3))
    verdict = verdict_of(tmp_path, {"nccl.log": UP + flushed + star()})
    assert named(verdict)[3] == ("n2",)


def test_a_dead_process_breaks_connections_too(tmp_path: Path) -> None:
    killed = make.kernel(
        "n2", "16:59", f"Out of memory: Killed process {make.pid_of(4)} (python3) total-vm:9kB, anon-rss:9kB"
    )
    verdict = verdict_of(tmp_path, {"nccl.log": UP + star(), "journal-n2.txt": killed})
    assert named(verdict)[:3] == ("out_of_memory", "high", (4,))


# -- GPUs ---------------------------------------------------------------------------------------------------------

WAITERS = "".join(make.timed_out(rank) for rank in range(8) if rank != 5)
FALLEN = "NVRM: Xid (PCI:0000:43:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."


def test_a_gpu_that_failed_in_time_takes_its_rank(tmp_path: Path) -> None:
    xid = make.kernel("n2", "17:00", FALLEN)
    verdict = verdict_of(tmp_path, {"console.log": UP + WAITERS, "journal-n2.txt": xid})
    assert named(verdict) == ("gpu_fault", "high", (5,), ("n2",))
    assert verdict.findings[0].root_cause.devices == ("0000:43:00.0",)


def test_an_old_fault_is_background(tmp_path: Path) -> None:
    old = f"2026-03-02T20:00:00+00:00 n0 kernel: {FALLEN}\n"
    verdict = verdict_of(tmp_path, {"console.log": UP + WAITERS, "journal-n0.txt": old})
    assert named(verdict)[2] == (5,)
    assert named(verdict)[0] != "gpu_fault"


def test_a_fault_beside_the_rank_s_own_device_error_is_in_time_whenever_others_waited(tmp_path: Path) -> None:
    late = "".join(make.timed_out(rank, clock="50:05") for rank in range(8) if rank != 5)
    xid = make.kernel("n2", "47:00", FALLEN)
    own = (
        "[rank5]:[E303 02:47:01.000000000 ProcessGroupNCCL.cpp:1901] [PG ID 0 PG GUID 0 Rank 5] Process group watchdog "
        "thread terminated with exception: CUDA error: unspecified launch failure\n"
    )
    assert named(verdict_of(tmp_path / "1", {"console.log": UP + late, "journal-n2.txt": xid}))[0] != "gpu_fault"
    verdict = verdict_of(tmp_path / "2", {"console.log": UP + late + own, "journal-n2.txt": xid})
    assert named(verdict)[:3] == ("gpu_fault", "high", (5,))


def test_a_fault_of_another_process_is_another_s(tmp_path: Path) -> None:
    other = make.kernel(
        "n0", "17:00", "NVRM: Xid (PCI:0000:43:00): 48, pid=99, name=other, An uncorrectable double bit error"
    )
    verdict = verdict_of(tmp_path, {"console.log": UP + WAITERS, "journal-n0.txt": other})
    assert named(verdict)[2] == (5,)
    assert named(verdict)[0] != "gpu_fault"


@pytest.mark.parametrize("number", [13, 31, 43, 45])
def test_faults_of_programs_are_no_faults_of_gpus(tmp_path: Path, number: int) -> None:
    xid = make.kernel(
        "n0", "17:00", f"NVRM: Xid (PCI:0000:43:00): {number}, pid={make.pid_of(1)}, name=python3, something"
    )
    verdict = verdict_of(tmp_path, {"console.log": UP + WAITERS, "journal-n0.txt": xid})
    assert named(verdict)[0] != "gpu_fault"


def test_a_clock_without_its_zone_is_forgiven_with_a_doubt(tmp_path: Path) -> None:
    xid = f"[Tue Mar  3 10:17:00 2026] {FALLEN}\n"
    category, sure, ranks, _hosts = named(verdict_of(tmp_path, {"console.log": UP + WAITERS, "dmesg-n2.txt": xid}))
    assert (category, sure, ranks) == ("gpu_fault", "medium", (5,))


def test_an_nvlink_error_may_be_the_other_end_s(tmp_path: Path) -> None:
    xid = make.kernel("n2", "17:00", "NVRM: Xid (PCI:0000:43:00): 74, pid=1005, NVLink: fatal error detected on link 3")
    verdict = verdict_of(tmp_path, {"console.log": UP + WAITERS, "journal-n2.txt": xid})
    assert named(verdict)[:3] == ("gpu_fault", "medium", (5,))


def test_a_healthy_job_has_no_gpu_fault(tmp_path: Path) -> None:
    steps = "".join(f"[rank{r}]: step {i} loss 2.5 time 0.5s\n" for i in range(5) for r in range(8))
    verdict = verdict_of(tmp_path, {"console.log": UP + steps, "journal-n2.txt": make.kernel("n2", "17:00", FALLEN)})
    assert not verdict.findings


# -- RAS ----------------------------------------------------------------------------------------------------------

BEHIND = {rank: 500 if rank != 3 else 499 for rank in range(8)}


def test_the_same_counts_twice_are_a_stop(tmp_path: Path) -> None:
    text = make.ras(BEHIND) + make.ras(BEHIND, date="02:17:35")
    verdict = verdict_of(tmp_path, {"ras.txt": text})
    assert named(verdict)[:3] == ("absent", "high", (3,))


def test_other_counts_at_the_next_query_are_skew(tmp_path: Path) -> None:
    later = {rank: count + 40 for rank, count in BEHIND.items()}
    assert not verdict_of(tmp_path, {"ras.txt": make.ras(BEHIND) + make.ras(later, date="02:17:35")}).findings


def test_one_query_cannot_tell(tmp_path: Path) -> None:
    assert named(verdict_of(tmp_path, {"ras.txt": make.ras(BEHIND)}))[1] in ("medium", "low", "")


def test_who_is_listed_may_be_ahead(tmp_path: Path) -> None:
    ahead = {rank: 500 if rank == 3 else 499 for rank in range(8)}
    text = make.ras(ahead) + make.ras(ahead, date="02:17:35")
    for finding in verdict_of(tmp_path, {"ras.txt": text}).findings:
        assert 3 not in finding.root_cause.ranks


def test_a_process_that_ras_holds_for_dead(tmp_path: Path) -> None:
    text = (
        "NCCL version 2.26.2 compiled with CUDA 12.6\nErrors\n======\n\nDEAD\n"
        f"  Process {make.pid_of(5)} on node n2 managing GPU 1\n\n"
    )
    verdict = verdict_of(tmp_path, {"nccl.log": UP, "ras.txt": text})
    assert named(verdict)[0] == "process_died"
    assert named(verdict)[2] == (5,)


# -- start-up -----------------------------------------------------------------------------------------------------


def offers(odd: int, interface: str, address: str) -> str:
    out = ""
    for rank in range(8):
        mine = (interface, address) if rank // 2 == odd else ("eth0", f"10.0.0.{rank // 2 + 1}")
        out += make.nccl(rank, f"Bootstrap : Using {mine[0]}:{mine[1]}<0>")
        comm = f"comm 0x7f{rank}0 rank {rank} nranks 8 cudaDev 0 nvmlDev 0 busId {make.BUSES[rank % 2]} commId 0xab12"
        out += make.nccl(rank, f"ncclCommInitRank {comm} - Init START")
        if rank // 2 != odd:
            out += make.nccl(
                rank, f"socketStartConnect: Connect to {address}<40001> failed : No route to host", level="WARN"
            )
    return out


@pytest.mark.parametrize("interface", ["docker0", "virbr0", "eth1"])
def test_an_address_that_nobody_can_reach(tmp_path: Path, interface: str) -> None:
    verdict = verdict_of(tmp_path, {"mpi.txt": offers(1, interface, "172.17.0.1")})
    assert named(verdict) == ("misconfigured_interface", "high", (2, 3), ("n1",))


def test_a_host_like_the_others_that_nobody_can_reach(tmp_path: Path) -> None:
    category, sure, _ranks, hosts = named(verdict_of(tmp_path, {"mpi.txt": offers(1, "eth0", "10.0.0.2")}))
    assert (category, sure, hosts) == ("init_timeout", "medium", ("n1",))


def test_subnets() -> None:
    assert subnet("10.0.3.7") == "10.0.3"
    assert subnet("fe80::1") == "fe80::1"


# -- slow ---------------------------------------------------------------------------------------------------------


def late(rank: int, ops: int = 40, start: int = 10) -> dict[str, str]:
    """From an operation on one rank comes 50 ms late: the others wait, it is through at once."""
    return make.inspector(8, ops, lambda r, n: 5_000 if n < start or r == rank else 55_000)


def test_the_rank_with_the_shortest_time_is_the_late_one(tmp_path: Path) -> None:
    verdict = verdict_of(tmp_path, late(5))
    assert named(verdict)[:3] == ("slow_compute", "high", (5,))
    assert verdict.status == "slow"
    assert "110" in verdict.findings[0].summary or any("110" in e.claim for e in verdict.findings[0].evidence)


def test_a_late_rank_whose_gpu_is_too_hot(tmp_path: Path) -> None:
    gpus = {"1B:00.0": {}, "43:00.0": {"hot": True, "clock": 1095, "temperature": 91}}
    verdict = verdict_of(tmp_path, {**late(5), "nccl.log": UP, "smi-n2.txt": make.smi(gpus)})
    assert named(verdict)[:3] == ("slow_gpu", "high", (5,))
    assert verdict.findings[0].root_cause.devices == ("0000:43:00.0",)


def test_another_gpu_that_is_hot_does_not_explain_it(tmp_path: Path) -> None:
    gpus = {"1B:00.0": {"hot": True, "clock": 1095}, "43:00.0": {}}
    verdict = verdict_of(tmp_path, {**late(5), "nccl.log": UP, "smi-n2.txt": make.smi(gpus)})
    assert named(verdict)[:3] == ("slow_compute", "high", (5,))


def test_a_late_rank_behind_a_narrow_link(tmp_path: Path) -> None:
    lspci = (
        "43:00.0 3D controller: NVIDIA Corporation GH100 [H100 SXM5 80GB] (rev a1)\n"
        "\t\tLnkCap:\tPort #0, Speed 32GT/s, Width x16, ASPM not supported\n"
        "\t\tLnkSta:\tSpeed 32GT/s, Width x2 (downgraded)\n"
    )
    verdict = verdict_of(tmp_path, {**late(5), "nccl.log": UP, "lspci-n2.txt": lspci})
    assert named(verdict)[:3] == ("pcie_degraded", "high", (5,))


def slow_transfer() -> dict[str, str]:
    return make.inspector(8, 40, lambda _r, n: 5_000 if n < 20 else 21_000)


def test_all_long_alike_is_the_transfer(tmp_path: Path) -> None:
    verdict = verdict_of(tmp_path, slow_transfer())
    category, sure, ranks, hosts = named(verdict)
    assert (category, sure, ranks, hosts) == ("slow_group", "low", (), ())


def counters(host: str, pause: int, out_of_order: int = 0) -> str:
    return (
        f"$ ethtool -S ens2\nNIC statistics:\n     tx_prio3_pause: {pause}\n     rx_prio3_pause: 3\n"
        f"     rx_discards_phy: {out_of_order}\n"
    )


def test_the_receiver_that_tells_others_to_stop(tmp_path: Path) -> None:
    files = {f"t0/{host}.txt": counters(host, 10) for host in ("n0", "n1", "n2", "n3")}
    files |= {f"t1/{host}.txt": counters(host, 900_000 if host == "n2" else 40) for host in ("n0", "n1", "n2", "n3")}
    verdict = verdict_of(tmp_path, {**slow_transfer(), **files})
    category, _sure, _ranks, hosts = named(verdict)
    assert (category, hosts) == ("network_congestion", ("n2",))


def test_counters_that_stood_high_before_say_nothing(tmp_path: Path) -> None:
    files = {
        f"t{t}/{host}.txt": counters(host, 900_000 if host == "n2" else 40)
        for host in ("n0", "n1", "n2", "n3")
        for t in (0, 1)
    }
    verdict = verdict_of(tmp_path, {**slow_transfer(), **files})
    assert named(verdict)[0] == "slow_group"


def test_a_link_whose_errors_grow(tmp_path: Path) -> None:
    def reading(errors: int) -> str:
        return (
            f"$ ethtool -S ens2\nNIC statistics:\n     rx_crc_errors_phy: {errors}\n     rx_symbol_err_phy: {errors}\n"
        )

    files = {f"t0/{host}.txt": reading(3) for host in ("n0", "n1")}
    files |= {f"t1/{host}.txt": reading(90_000 if host == "n1" else 3) for host in ("n0", "n1")}
    verdict = verdict_of(tmp_path, {**slow_transfer(), **files})
    category, _sure, _ranks, hosts = named(verdict)
    assert (category, hosts) == ("link_fault", ("n1",))


def test_steady_times_are_no_finding(tmp_path: Path) -> None:
    steady = make.inspector(8, 40, lambda r, n: 5_000 + 100 * ((r * 7 + n * 3) % 5))
    assert not verdict_of(tmp_path, steady).findings


def test_lateness_that_comes_back_at_a_distance(tmp_path: Path) -> None:
    files = make.inspector(4, 120, lambda rank, sn: 2000 if sn % 20 != 19 or rank == 2 else 60_000)
    verdict = verdict_of(tmp_path, files)
    assert named(verdict)[2] == (2,)
    assert "every 20 operations" in verdict.findings[0].why


def test_a_group_that_is_slower_than_its_twins(tmp_path: Path) -> None:
    files: dict[str, str] = {}
    for group in range(5):
        time_us = 9000 if group == 3 else 2000
        for name, text in make.inspector(2, 12, lambda _rank, _sn, us=time_us: us).items():
            moved = (
                text.replace("0xab12", f"0xab1{group}")
                .replace('"n0"', f'"n{group}"')
                .replace('"pid": 100', f'"pid": 1{group}0')
            )
            files[f"g{group}/{name.replace('n0', f'n{group}')}"] = moved
    verdict = verdict_of(tmp_path, files)
    assert named(verdict)[0] == "slow_group"
    assert "4 other groups of its size" in verdict.findings[0].why


def test_lateness_that_changes_hands_is_nobody_s(tmp_path: Path) -> None:
    turns = make.inspector(8, 40, lambda r, n: 5_000 if r == n % 8 else 55_000)
    for finding in verdict_of(tmp_path, turns).findings:
        assert not finding.root_cause.ranks


# -- benchmarks ---------------------------------------------------------------------------------------------------

PAIRS = [(a, b) for a in range(4) for b in range(a + 1, 4)]


def matrix(slow: set[tuple[int, int]], **more: int) -> dict[str, str]:
    return {
        f"all_reduce_a{a}_a{b}.txt": make.bench((f"a{a}", f"a{b}"), 40.0 if (a, b) in slow else 150.0, **more)
        for a, b in PAIRS
    }


def test_a_slow_row_is_the_host(tmp_path: Path) -> None:
    verdict = verdict_of(tmp_path, matrix({(0, 2), (1, 2), (2, 3)}))
    assert named(verdict) == ("slow_nic", "high", (), ("a2",))


def test_a_single_slow_cell_is_the_path(tmp_path: Path) -> None:
    verdict = verdict_of(tmp_path, matrix({(0, 2)}))
    assert named(verdict)[3] == ("a0", "a2")
    assert verdict.findings[0].root_cause.one_of
    assert named(verdict)[1] == "medium"


def test_a_fast_matrix_is_no_finding(tmp_path: Path) -> None:
    assert not verdict_of(tmp_path, matrix(set())).findings


def test_wrong_results_are_said(tmp_path: Path) -> None:
    files = matrix(set())
    files["all_reduce_a0_a1.txt"] = make.bench(("a0", "a1"), 150.0, wrong=7)
    verdict = verdict_of(tmp_path, files)
    assert "wrong results" in verdict.findings[0].summary + " ".join(e.claim for e in verdict.findings[0].evidence)


# -- watchdogs ----------------------------------------------------------------------------------------------------


def console(*parts: str) -> dict[str, str | bytes]:
    return {"console.log": "".join(parts)}


def test_another_operation_at_the_same_number(tmp_path: Path) -> None:
    text = "".join(make.timed_out(r, op="BROADCAST" if r == 3 else "ALLREDUCE") for r in range(8))
    assert named(verdict_of(tmp_path, console(text)))[:3] == ("code_divergence", "high", (3,))


def test_another_size_at_the_same_number(tmp_path: Path) -> None:
    text = "".join(make.timed_out(r, numel=999 if r == 3 else 1000) for r in range(8))
    assert named(verdict_of(tmp_path, console(text)))[:3] == ("size_mismatch", "high", (3,))


def test_a_rank_that_never_came(tmp_path: Path) -> None:
    text = "".join(make.timed_out(r) + make.status(r, enqueued=903, completed=899) for r in range(8) if r != 3)
    text += make.status(3, enqueued=899, completed=899)
    assert named(verdict_of(tmp_path, console(text)))[:3] == ("absent", "high", (3,))


def test_a_rank_of_which_nothing_is_known(tmp_path: Path) -> None:
    text = "".join(make.timed_out(r) + make.status(r, enqueued=903, completed=899) for r in range(8) if r != 3)
    assert named(verdict_of(tmp_path, console(text)))[:3] == ("absent", "medium", (3,))


def test_two_groups_entered_in_opposite_order(tmp_path: Path) -> None:
    def waits(rank: int) -> str:
        group, seq = ("1", 40) if rank == 3 else ("2", 70)
        return make.timed_out(rank, seq=seq) + make.status(rank, seq=seq, enqueued=seq, completed=seq - 1, group=group)

    verdict = verdict_of(tmp_path, console("".join(waits(rank) for rank in range(8))))
    assert named(verdict)[:3] == ("order_deadlock", "high", (3,))


def test_of_several_silent_ranks_the_one_with_a_reason(tmp_path: Path) -> None:
    text = "".join(make.timed_out(r) for r in range(8) if r not in (3, 6))
    stack = (
        'Process 1003: python3 train.py\nPython v3.11.9 (/usr/bin/python3.11)\n\nThread 1003 (active): "MainThread"\n'
        "    poll (multiprocessing/connection.py:257)\n    _next_data (torch/utils/data/dataloader.py:1290)\n"
        "    <module> (train.py:9)\n"
    )
    verdict = verdict_of(tmp_path, {"console.log": text, "pyspy-rank3.txt": stack})
    assert named(verdict)[:3] == ("dataloader", "medium", (3,))


# -- calls that NCCL lists ----------------------------------------------------------------------------------------

# One rank lost its patience: that the job is in trouble, and no more.
TROUBLE = make.nccl(0, "[Service thread] Connection closed by localRank 1")


def calls(until: dict[int, int], **odd: dict[str, str | int]) -> str:
    """Every rank calls up to its number; rank 3 may differ at one."""
    return "".join(
        make.call(rank, number, **(odd.get(f"at{number}", {}) if rank == 3 else {}))  # pyright: ignore[reportArgumentType]
        for rank, last in until.items()
        for number in range(last - 5, last + 1)
    )


def test_a_rank_that_did_not_call(tmp_path: Path) -> None:
    text = UP + calls({rank: 40 if rank != 3 else 39 for rank in range(8)}) + TROUBLE
    assert named(verdict_of(tmp_path, {"nccl.log": text}))[:3] == ("absent", "high", (3,))


def test_another_call_at_the_same_number(tmp_path: Path) -> None:
    text = UP + calls(dict.fromkeys(range(8), 40), at38={"op": "Broadcast"}) + TROUBLE
    assert named(verdict_of(tmp_path, {"nccl.log": text}))[:3] == ("code_divergence", "high", (3,))


def test_another_count_at_the_same_number(tmp_path: Path) -> None:
    text = UP + calls(dict.fromkeys(range(8), 40), at38={"count": 7}) + TROUBLE
    assert named(verdict_of(tmp_path, {"nccl.log": text}))[:3] == ("size_mismatch", "high", (3,))


def test_uneven_calls_of_a_healthy_job_are_no_finding(tmp_path: Path) -> None:
    text = UP + calls({rank: 40 if rank != 3 else 39 for rank in range(8)})
    assert not verdict_of(tmp_path, {"nccl.log": text}).findings


def test_a_call_on_another_communicator_instead(tmp_path: Path) -> None:
    text = UP
    for rank in range(8):
        comm = f"comm 0x9f{rank:x}0 rank {rank} nranks 8 cudaDev 0 nvmlDev 0 busId {make.BUSES[rank % 2]} commId 0xef"
        text += make.nccl(rank, f"ncclCommInitRank {comm} - Init COMPLETE")
    for rank in range(8):
        text += make.call(rank, 38) + make.call(rank, 11, comm=f"0x9f{rank:x}0")
    for rank in range(8):
        text += make.call(rank, 12, comm="0x9f30") if rank == 3 else make.call(rank, 39)
    assert named(verdict_of(tmp_path, {"nccl.log": text + TROUBLE}))[:3] == ("order_deadlock", "high", (3,))


# -- state of machines --------------------------------------------------------------------------------------------


def test_a_hot_gpu_alone_is_said_without_being_sure_that_it_matters(tmp_path: Path) -> None:
    gpus = {
        f"{bus[:-3].upper().zfill(2)}:00.0": {"hot": n == 1, "clock": 900 if n == 1 else 1980}
        for n, bus in enumerate(make.BUSES)
    }
    verdict = verdict_of(tmp_path, {"smi-n2.txt": make.smi(gpus)})
    assert named(verdict)[:2] == ("slow_gpu", "medium")
    assert named(verdict)[3] == ("n2",) or verdict.findings[0].root_cause.devices == ("0000:43:00.0",)


def test_storage_that_stalls_stands_beside_a_checkpoint_that_does_not_end(tmp_path: Path) -> None:
    saving = "[rank0]: saving checkpoint at iteration 5000 to /ckpt\n"
    waiting = "".join(make.timed_out(rank) for rank in range(1, 8))
    stalled = make.kernel("n0", "17:00", "nfs: server fs1 not responding, still trying")
    alone = verdict_of(tmp_path / "1", {"console.log": UP + saving + waiting})
    beside = verdict_of(tmp_path / "2", {"console.log": UP + saving + waiting, "journal-n0.txt": stalled})
    assert named(alone)[:3] == named(beside)[:3] == ("checkpoint", "high", (0,))
    assert [v.source for v in beside.findings[0].votes if v.source == "storage"]
    assert not [v.source for v in alone.findings[0].votes if v.source == "storage"]


# -- what explains nothing ----------------------------------------------------------------------------------------

GONE = "NVRM: Xid (PCI:0000:{}:00): 79, pid=1, name=python3, GPU has fallen off the bus."


def missing(rank: int) -> str:
    """Everybody but one rank times out; that one says that it never called."""
    others = "".join(make.timed_out(r) + make.status(r, enqueued=900, completed=899) for r in range(8) if r != rank)
    signal = (
        f"[rank{rank}]:[E303 02:27:06.000000000 ProcessGroupNCCL.cpp:1682] [PG ID 0 PG GUID 0(default_pg) Rank {rank}] "
        "Received a dump signal due to a collective timeout from  rank 0 and we will try our best to dump the debug "
        "info. Last enqueued NCCL work: 899, last completed NCCL work: 899.\n"
    )
    return UP + others + signal


def test_a_gpu_of_a_machine_outside_of_the_job_comes_after_what_accuses_a_rank(tmp_path: Path) -> None:
    rack = f"z9: [Tue Mar  3 02:17:00 2026] {GONE.format('43')}\nn0: [Tue Mar  3 01:00:00 2026] eth0: link is up\n"
    verdict = verdict_of(tmp_path, {"console.log": missing(4), "rack.txt": rack})
    assert named(verdict) == ("absent", "high", (4,), ("n2",))
    assert [(f.category, f.confidence, f.root_cause.ranks) for f in verdict.findings[1:]] == [("gpu_fault", "low", ())]


def test_a_gpu_at_the_address_of_the_missing_rank_s_is_its_own(tmp_path: Path) -> None:
    node = f"[Tue Mar  3 02:17:00 2026] {GONE.format('1b')}\n"
    verdict = verdict_of(tmp_path, {"console.log": missing(4), "ip-10-0-3-7.dmesg": node})
    assert named(verdict) == ("gpu_fault", "medium", (4,), ("n2",))
    assert "the host of ip-10-0-3-7.dmesg" in verdict.summary.replace("evidence/", "")
    assert len(verdict.findings) == 1


def test_whoever_timed_out_is_not_gone_because_it_closed_its_connections(tmp_path: Path) -> None:
    closed = "".join(
        make.nccl(r, "socketProgress: Connection closed by remote peer n0<43211>", level="WARN")
        for r in (2, 3, 4, 5, 6)
    )
    here = "".join(make.timed_out(r) for r in (0, 1))
    verdict = verdict_of(tmp_path, {"nccl.log": UP + here + closed})
    assert all(f.category != "process_died" for f in verdict.findings)


def test_a_job_that_somebody_interrupts_has_no_culprit(tmp_path: Path) -> None:
    lines = "".join(
        f'[rank{r}]: Traceback (most recent call last):\n[rank{r}]:   File "train.py", line 3, in main\n'
        f"[rank{r}]: KeyboardInterrupt\n"
        for r in (2, 0, 1)
    )
    assert named(verdict_of(tmp_path, {"console.log": lines})) == ("cannot_tell", "", (), ())


def test_a_host_whose_own_log_is_missing_is_named_by_its_address(tmp_path: Path) -> None:
    text = "".join(make.failed_transfer(2 * host, 2).replace("10.0.0.3", "10.0.0.9") for host in (0, 1, 3))
    assert named(verdict_of(tmp_path, {"nccl.log": UP + text})) == ("link_fault", "medium", (), ("10.0.0.9",))


def test_a_task_out_of_memory_names_its_host_where_no_line_says_which_rank_it_is(tmp_path: Path) -> None:
    text = (
        "[rank0]: Traceback (most recent call last):\n"
        "[rank0]: torch.distributed.DistBackendError: NCCL communicator was aborted on rank 0.\n"
        "srun: error: n2: task 3: Out Of Memory\n"
    )
    assert named(verdict_of(tmp_path, {"slurm-1.out": text})) == ("out_of_memory", "medium", (), ("n2",))


def test_a_gpu_that_no_rank_of_its_host_uses_comes_after_what_accuses_a_rank(tmp_path: Path) -> None:
    spare = make.kernel("n2", "17:00", GONE.format("df"))
    verdict = verdict_of(tmp_path, {"console.log": missing(4), "journal-n2.txt": spare})
    assert named(verdict) == ("absent", "high", (4,), ("n2",))


def test_a_part_of_the_ranks_that_waits_for_one_of_them_is_no_crossed_order(tmp_path: Path) -> None:
    tp = "[PG ID 3 PG GUID 9(mesh_tp) Rank {r}] Exception (either an error or timeout) detected "
    tp += "by watchdog at work: 900, last enqueued NCCL work: 900, last completed NCCL work: 899."
    text = ""
    for rank in (0, 1, 2):
        text += make.timed_out(rank)
        text += f"[rank{rank}]:[E303 02:27:05.100000000 ProcessGroupNCCL.cpp:1785] {tp.format(r=rank)}\n"
    for rank in (4, 5, 6, 7):
        text += make.timed_out(rank, seq=55, clock="27:09")
        text += make.status(rank, enqueued=55, completed=54, seq=55, clock="27:09")
    text += make.status(3, enqueued=54, completed=54, seq=54, clock="27:10")
    found = verdict_of(tmp_path, {"log.txt": text}).findings[0]
    assert (found.category, found.root_cause.ranks) != ("order_deadlock", (0, 1, 2))
