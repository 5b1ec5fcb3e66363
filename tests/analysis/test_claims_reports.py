"""One rule, one test: reports in which torch compares the ranks, put together."""

# Log lines are as long as they are.
# ruff: noqa: E501

from __future__ import annotations

from pathlib import Path

from tests.analysis import incidents as make
from tests.analysis.incidents import named, verdict_of


def fingerprint(op: str = "ALLREDUCE", shape: str = "16, 4096", seq: int = 77, dtype: str = "BFloat16") -> str:
    return f"CollectiveFingerPrint(SequenceNumber={seq}, OpType={op}, TensorShape=[{shape}], TensorDtypes={dtype}, TensorDeviceTypes=TensorOptions(dtype=float (default), device=cuda))"


def mismatch(mine: dict[int, str]) -> str:
    """Each rank's complaint: it is compared with the next rank that differs."""
    out = ""
    for rank, print_ in mine.items():
        other = next((r for r, theirs in mine.items() if theirs != print_), None)
        if other is not None:
            out += f"[rank{rank}]: RuntimeError: Detected mismatch between collectives on ranks. Rank {rank} is running collective: {print_}, but Rank {other} is running collective: {mine[other]}.\n"
    return out


def test_the_minority_of_fingerprints_is_named_not_who_complains(tmp_path: Path) -> None:
    usual = fingerprint()
    text = mismatch({0: usual, 1: usual, 2: fingerprint(shape="12, 4096"), 3: usual})
    assert named(verdict_of(tmp_path, {"log.txt": text}))[:3] == ("size_mismatch", "high", (2,))


def test_another_operation_goes_before_its_size(tmp_path: Path) -> None:
    usual = fingerprint()
    text = mismatch({0: usual, 1: fingerprint(op="BROADCAST", shape="1"), 2: usual})
    assert named(verdict_of(tmp_path, {"log.txt": text}))[:3] == ("code_divergence", "high", (1,))


def test_another_dtype(tmp_path: Path) -> None:
    usual = fingerprint()
    text = mismatch({0: usual, 1: fingerprint(dtype="Float"), 2: usual})
    assert named(verdict_of(tmp_path, {"log.txt": text}))[:3] == ("size_mismatch", "high", (1,))


def test_another_number_is_another_path(tmp_path: Path) -> None:
    usual = fingerprint()
    text = mismatch({0: usual, 1: usual, 2: fingerprint(seq=76)})
    assert named(verdict_of(tmp_path, {"log.txt": text}))[:3] == ("code_divergence", "high", (2,))


def test_two_ranks_that_disagree_are_one_of_two(tmp_path: Path) -> None:
    verdict = verdict_of(tmp_path, {"log.txt": mismatch({0: fingerprint(), 1: fingerprint(shape="8")})})
    assert named(verdict)[1:3] == ("medium", (0, 1))
    assert verdict.findings[0].root_cause.one_of


def test_parameters_of_a_model_are_counted_over_all_complaints(tmp_path: Path) -> None:
    text = "".join(
        f"[rank{r}]: RuntimeError: DDP expects same model across all ranks, but Rank {r} has {n} params, while rank {other} has inconsistent {m} params.\n"
        for r, n, other, m in ((0, 161, 2, 158), (1, 161, 2, 158), (2, 158, 0, 161))
    )
    assert named(verdict_of(tmp_path, {"log.txt": text}))[:3] == ("size_mismatch", "high", (2,))


def test_a_desync_report_names_who_did_not_join_not_who_did_not_finish(tmp_path: Path) -> None:
    text = (
        "\t - To our best knowledge, the lagging/dead/mismatched ranks that caused the desync are:\n"
        "\t   - [2, 5] joined but didn't finish collective #4411 (count from 1)\n"
        "\t     [6] finished collective #4410, but didn't join collective #4411 (count from 1)\n"
    )
    assert named(verdict_of(tmp_path, {"rank0.log": make.timed_out(0) + text}))[:3] == ("absent", "high", (6,))


def test_a_monitored_barrier_names_who_did_not_come(tmp_path: Path) -> None:
    text = "[rank0]: RuntimeError: [Rank 0]: Ranks 3, 5 failed to pass monitoredBarrier in 30000 ms\n"
    assert named(verdict_of(tmp_path, {"log.txt": text}))[:3] == ("absent", "high", (3, 5))


def test_ranks_of_a_group_are_less_sure(tmp_path: Path) -> None:
    group = make.timed_out(9).replace("[Rank 9]", "[Rank 1]")
    text = "[rank8]: RuntimeError: [Rank 0]: Rank 1 failed to pass monitoredBarrier in 30000 ms\n"
    assert named(verdict_of(tmp_path, {"log.txt": group + text}))[1] == "medium"
