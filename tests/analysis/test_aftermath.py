"""What is over, and what came after the end, blames nobody; what came before it does."""

# Log lines are as long as they are.
# ruff: noqa: E501

from __future__ import annotations

from pathlib import Path

import pytest

from tests.analysis import incidents as make
from tests.analysis.incidents import named, verdict_of

STEPS = "".join(f"{rank}: [rank{rank}] step {step} loss 2.1\n" for step in range(90, 94) for rank in range(4))
STOP = "slurmstepd: error: *** STEP 71.0 ON n0 CANCELLED AT 2026-03-03T02:17:05{why} ***\n"
WORKER = "{r}: [rank{r}]: RuntimeError: DataLoader worker (pid 7{r}23) is killed by signal: {signal}. \n"


def traceback(rank: int, last: str, head: str = "") -> str:
    lines = ("Traceback (most recent call last):", '  File "/app/train.py", line 31, in step', "    run()", last)
    return "".join(f"{head}[rank{rank}]: {line}\n" for line in lines)


def steps(minute: int, count: int, rank: str = "") -> str:
    return "".join(f"2026-03-03 02:{minute + n:02d}:00 {rank}step {10 * minute + n} loss 2.1\n" for n in range(count))


@pytest.mark.parametrize(
    ("why", "words"),
    [
        (" DUE TO PREEMPTION", "PREEMPTION"),
        (" DUE TO TIME LIMIT", "TIME LIMIT"),
        (" DUE TO JOB REQUEUE", "JOB REQUEUE"),
        ("", "gives no reason"),
    ],
)
def test_what_ranks_say_while_slurm_takes_them_down_blames_nobody(tmp_path: Path, why: str, words: str) -> None:
    text = STEPS + STOP.format(why=why) + traceback(2, "RuntimeError: cannot write: interrupted", "2: ")
    text += WORKER.format(r=1, signal="Terminated") + "srun: error: n1: task 3: Killed\n"
    verdict = verdict_of(tmp_path, {"slurm-71.out": text})
    assert (verdict.status, verdict.findings) == ("cannot_tell", ())
    assert words in verdict.summary


def test_an_error_before_the_stop_is_what_it_answers(tmp_path: Path) -> None:
    text = STEPS + traceback(2, "KeyError: 'labels'", "2: ") + STOP.format(why="") + "srun: error: n1: task 3: Killed\n"
    assert named(verdict_of(tmp_path, {"slurm-71.out": text}))[:3] == ("exception", "high", (2,))


def test_the_task_that_left_first_is_the_rank_of_its_number(tmp_path: Path) -> None:
    text = STEPS + "srun: error: n0: task 1: Exited with exit code 1\n" + STOP.format(why="")
    text += "srun: error: n0: task 0: Terminated\nsrun: error: n1: task 3: Killed\n"
    assert named(verdict_of(tmp_path, {"slurm-71.out": text}))[:3] == ("process_died", "high", (1,))


def test_a_node_that_slurm_lost_without_a_name_is_not_the_one_that_says_so(tmp_path: Path) -> None:
    text = STEPS + STOP.format(why=" DUE TO NODE FAILURE, SEE SLURMCTLD LOG FOR DETAILS")
    verdict = verdict_of(tmp_path, {"slurm-71.out": text + "srun: error: n0: tasks 0-1: Killed\n"})
    assert not verdict.findings
    assert "NODE FAILURE" in verdict.summary


def test_a_fault_after_which_the_job_went_on_is_not_the_last_one(tmp_path: Path) -> None:
    text = steps(1, 4) + traceback(
        3, "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.", "2026-03-03 02:05:00 "
    )
    text += steps(10, 8) + traceback(1, "ValueError: bad shard")
    assert named(verdict_of(tmp_path, {"log.txt": text}))[:3] == ("exception", "high", (1,))


def test_a_fault_after_which_the_job_went_on_is_told_while_there_is_no_other(tmp_path: Path) -> None:
    text = steps(1, 4) + traceback(
        3, "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.", "2026-03-03 02:05:00 "
    )
    assert named(verdict_of(tmp_path, {"log.txt": text + steps(10, 8)}))[:3] == ("out_of_memory", "high", (3,))


def test_what_stands_in_a_rotated_log_was_before_what_the_log_goes_on_with(tmp_path: Path) -> None:
    old = steps(1, 4) + traceback(3, "ValueError: bad magic")
    new = steps(10, 8) + "".join(make.timed_out(rank) for rank in (0, 2, 3)) + traceback(1, "ValueError: bad shard")
    assert named(verdict_of(tmp_path, {"train.log.1": old, "train.log": new}))[:3] == ("exception", "high", (1,))


def test_a_loader_worker_that_the_kernel_killed_is_memory_of_its_rank(tmp_path: Path) -> None:
    log = "".join(make.timed_out(rank) for rank in range(8) if rank != 5)
    log += WORKER.format(r=5, signal="Killed").removeprefix("5: ")
    kernel = "[Tue Mar  3 02:10:45 2026] Memory cgroup out of memory: Killed process 7523 (pt_data_worker) total-vm:18kB, anon-rss:61kB, file-rss:7kB, shmem-rss:0kB, UID:1001 pgtables:1kB oom_score_adj:0\n"
    assert named(verdict_of(tmp_path, {"log.txt": log, "n2.dmesg": kernel}))[:3] == ("out_of_memory", "high", (5,))


def test_a_checkpoint_that_failed_on_one_rank_blames_that_one(tmp_path: Path) -> None:
    text = ""
    for rank in range(4):
        text += traceback(
            rank, "torch.distributed.checkpoint.api.CheckpointException: CheckpointException ranks:dict_keys([2])"
        )
        text += f"[rank{rank}]: Traceback (most recent call last): (RANK 2)\n"
        text += (
            f'[rank{rank}]:   File "/app/filesystem.py", line 650, in write_data\n[rank{rank}]:     file.write(data)\n'
        )
        text += f"[rank{rank}]: OSError: [Errno 28] No space left on device\n"
    assert named(verdict_of(tmp_path, {"log.txt": text}))[:3] == ("exception", "high", (2,))


def test_a_job_that_was_started_again_in_the_same_file_may_fail_by_itself(tmp_path: Path) -> None:
    text = steps(0, 3) + STOP.format(why=" DUE TO JOB REQUEUE") + steps(30, 4) + traceback(2, "ValueError: bad shard")
    assert named(verdict_of(tmp_path, {"slurm-71.out": text}))[:3] == ("exception", "high", (2,))


def test_a_fault_that_an_earlier_start_had_does_not_spoil_a_job_that_finished(tmp_path: Path) -> None:
    text = steps(1, 4) + traceback(
        3, "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.", "2026-03-03 02:05:00 "
    )
    verdict = verdict_of(tmp_path, {"log.txt": text + steps(10, 8) + "training finished after 18 iterations\n"})
    assert not verdict.findings


def test_a_device_error_of_one_rank_is_its_own_even_if_its_watchdog_tells_it(tmp_path: Path) -> None:
    text = "[rank2]:[E303 02:17:03.013057536 ProcessGroupNCCL.cpp:1895] [PG ID 0 PG GUID 0(default_pg) Rank 2] Process group watchdog thread terminated with exception: CUDA error: an illegal memory access was encountered\n"
    text += "".join(make.timed_out(rank) for rank in (0, 1, 3))
    assert named(verdict_of(tmp_path, {"log.txt": text}))[:3] == ("exception", "high", (2,))


def test_a_process_that_ended_badly_is_no_healthy_job(tmp_path: Path) -> None:
    text = (
        steps(1, 4)
        + "E0303 02:10:47.000000 77 torch/distributed/elastic/multiprocessing/api.py:874] failed (exitcode: 1) local_rank: 2 (pid: 4106) of binary: /usr/bin/python3\n"
    )
    verdict = verdict_of(tmp_path, {"log.txt": text})
    assert verdict.status != "healthy"


def test_a_rank_that_alone_aborted_is_named_but_not_surely(tmp_path: Path) -> None:
    text = "[rank0]: step 3 loss 2.1\n"
    text += "ChildFailedError: \nFailures:\n  <NO_OTHER_FAILURES>\nRoot Cause (first observed failure):\n[0]:\n  time      : 2026-03-03_02:17:04\n  host      : n1\n  rank      : 2 (local_rank: 0)\n  exitcode  : -6 (pid: 1002)\n  error_file: <N/A>\n  traceback : Signal 6 (SIGABRT) received by PID 1002\n============\n"
    assert named(verdict_of(tmp_path, {"log.txt": text}))[:3] == ("process_died", "medium", (2,))


def test_a_command_that_the_shell_saw_end_is_the_rank_of_its_process(tmp_path: Path) -> None:
    text = make.start_up(8) + "./run.sh: line 8:  1005 Segmentation fault      (core dumped) python train.py\n"
    text += "".join(make.timed_out(rank) for rank in (0, 1, 3))
    assert named(verdict_of(tmp_path, {"log.txt": text}))[:3] == ("process_died", "high", (5,))


def test_a_clock_that_was_set_back_does_not_make_an_error_an_old_one(tmp_path: Path) -> None:
    text = steps(10, 9, "[rank3] ") + steps(1, 4, "[rank3] ")
    text += "".join(f"2026-03-03 02:05:00 {line}\n" for line in traceback(3, "TypeError: bad operand").splitlines())
    assert named(verdict_of(tmp_path, {"log.txt": text}))[:3] == ("exception", "high", (3,))


def test_a_fatal_error_of_a_switch_is_of_its_host_and_of_no_rank(tmp_path: Path) -> None:
    log = make.start_up(8) + "".join(make.timed_out(rank) for rank in range(8))
    line = "nvidia-nvswitch2: SXid (PCI:0000:07:00.0): 22013, Fatal, Link 12 Minion Link DLREQ interrupt"
    files = {"log.txt": log, "dmesg.txt": make.kernel("n2", "17:00", line)}
    assert named(verdict_of(tmp_path, files)) == ("gpu_fault", "medium", (), ("n2",))


def test_trouble_before_a_stop_is_not_healthy(tmp_path: Path) -> None:
    text = (
        STEPS
        + "slurmstepd: error: Detected 1 oom_kill event in StepId=71.0. Some of the step tasks have been OOM Killed.\n"
    )
    verdict = verdict_of(tmp_path, {"slurm-71.out": text + STOP.format(why="")})
    assert verdict.status == "cannot_tell"


AGAIN = "I0303 02:05:12.120000 77 torch/distributed/elastic/agent/server/api.py:879] [default] Worker group FAILED. 2/3 attempts left; will restart worker group\n"


def test_an_error_before_the_workers_were_started_again_is_over(tmp_path: Path) -> None:
    text = steps(1, 4) + traceback(3, "ValueError: bad magic") + AGAIN + steps(10, 8) + traceback(1, "KeyError: 7")
    assert named(verdict_of(tmp_path, {"log.txt": text}))[:3] == ("exception", "high", (1,))


def test_what_a_process_had_kept_back_does_not_make_an_error_an_old_one(tmp_path: Path) -> None:
    text = steps(1, 1) + traceback(3, "ValueError: bad magic") + steps(2, 8)
    text += "".join(make.timed_out(rank) for rank in (0, 1, 2))
    assert named(verdict_of(tmp_path, {"log.txt": text}))[:3] == ("exception", "high", (3,))


def test_many_steps_without_times_make_it_one(tmp_path: Path) -> None:
    text = (
        "step 3 loss 2.1\n"
        + traceback(3, "ValueError: caught")
        + "".join(f"step {n} loss 2.1\n" for n in range(4, 400))
    )
    text += traceback(1, "KeyError: 7")
    assert named(verdict_of(tmp_path, {"log.txt": text}))[:3] == ("exception", "high", (1,))


def test_an_error_after_which_a_rank_made_the_call_of_all_was_caught(tmp_path: Path) -> None:
    text = traceback(3, "HTTPError: 502", "2026-03-03 02:00:01 ")
    text += "".join(make.timed_out(rank) + make.status(rank, enqueued=901, completed=899) for rank in (0, 1, 2, 3))
    text += make.status(4, enqueued=899, completed=899)
    assert named(verdict_of(tmp_path, {"log.txt": text}))[2] == (4,)


def child(rank: int, code: int, at: str) -> str:
    head = "ChildFailedError: \nFailures:\n  <NO_OTHER_FAILURES>\nRoot Cause (first observed failure):\n[0]:\n"
    return (
        head
        + f"  time      : 2026-03-03_{at}\n  host      : n0\n  rank      : {rank} (local_rank: {rank})\n  exitcode  : {code} (pid: 4100)\n  error_file: <N/A>\n  traceback : N/A\n============\n"
    )


def test_a_waiter_that_somebody_killed_later_is_no_cause(tmp_path: Path) -> None:
    text = "".join(make.timed_out(rank) + make.status(rank, enqueued=901, completed=899) for rank in (0, 1, 2))
    text += make.status(3, enqueued=899, completed=899) + child(2, -9, "04:35:46")
    assert named(verdict_of(tmp_path, {"log.txt": text}))[2] == (3,)


def test_a_library_that_dies_after_the_work_is_no_fault_of_the_job(tmp_path: Path) -> None:
    text = steps(1, 8) + "training finished after 8 iterations\n" + child(0, -11, "02:09:46")
    assert not verdict_of(tmp_path, {"log.txt": text}).findings


def test_of_tasks_that_left_one_after_the_other_the_first_is_named_and_not_surely(tmp_path: Path) -> None:
    text = STEPS + "".join(f"srun: error: n{task // 2}: task {task}: Exited with exit code 1\n" for task in (3, 1))
    assert named(verdict_of(tmp_path, {"slurm-71.out": text}))[:3] == ("process_died", "medium", (3,))


def test_what_the_interpreter_ignored_is_no_error(tmp_path: Path) -> None:
    lines = traceback(0, "AttributeError: no attribute '_workers'").replace("[rank0]: ", "[default2]:")
    text = "".join(f"[default{n}]:[rank{n}]: step 3 loss 2.1\n" for n in range(4)) + traceback(
        1, "KeyError: 7", "[default1]:"
    )
    text += "[default2]:Exception ignored in: <function Loader.__del__ at 0x7f11>\n" + lines
    assert named(verdict_of(tmp_path, {"log.txt": text}))[:3] == ("exception", "high", (1,))


@pytest.mark.parametrize("signal", ["Signals.SIGTERM", "15", "SIGTERM"])
def test_a_launcher_that_is_told_to_stop_is_no_fault_and_no_health(tmp_path: Path, signal: str) -> None:
    text = (
        STEPS
        + f"W0303 02:10:45.220000 900 torch/distributed/elastic/agent/server/api.py:719] Received {signal} death signal, shutting down workers\n"
    )
    verdict = verdict_of(tmp_path, {"log.txt": text + traceback(2, "ValueError: closed file")})
    assert (verdict.status, verdict.findings) == ("cannot_tell", ())
    assert "told from outside to stop" in verdict.summary


def test_leaving_on_purpose_answers_the_error_of_another_rank(tmp_path: Path) -> None:
    text = traceback(2, "KeyError: 12") + "".join(traceback(rank, "SystemExit: 1") for rank in (0, 1, 3))
    assert named(verdict_of(tmp_path, {"log.txt": text}))[:3] == ("exception", "high", (2,))


def test_a_stop_of_one_job_is_none_of_another(tmp_path: Path) -> None:
    later = traceback(1, "KeyError: 3", "2026-03-03 02:19:00 ")
    files = {"slurm-71.out": STEPS + STOP.format(why=" DUE TO PREEMPTION"), "slurm-72.out": STEPS + later}
    assert named(verdict_of(tmp_path, files))[:3] == ("exception", "high", (1,))


def test_logs_that_end_in_errors_are_of_no_healthy_job(tmp_path: Path) -> None:
    text = "".join(f"[rank{rank}]: step 4 loss 2.1\n" for rank in range(4))
    text += "".join(f"[rank{rank}]: RuntimeError: collective call failed\n" for rank in range(3))
    assert verdict_of(tmp_path, {"log.txt": text}).status == "cannot_tell"
