from __future__ import annotations

from collections.abc import Callable

import pytest

from mycroft.analysis.case import Case
from mycroft.analysis.stacks import Frame, by_place, call_site, classify, odd_ones, parse_frame
from tests.analysis.trace_builder import TraceBuilder

CaseOf = Callable[[TraceBuilder], Case]
C10D = "torch/distributed/distributed_c10d.py"


@pytest.mark.parametrize(
    ("text", "frame"),
    [
        ("f (a/b.py:12)", Frame("f", "a/b.py", 12)),
        ("<lambda> (x.py:1)", Frame("<lambda>", "x.py", 1)),
        ("Loader._read (train.py)", Frame("Loader._read", "train.py", None)),
        ("cudaLaunchKernel (libcudart.so.12)", Frame("cudaLaunchKernel", "libcudart.so.12", None)),
        ("garbage", Frame("garbage", "", None)),
    ],
)
def test_frames_are_split(text: str, frame: Frame) -> None:
    assert parse_frame(text) == frame


@pytest.mark.parametrize(
    ("kind", "frames"),
    [
        ("collective", (f"all_reduce ({C10D}:3252)", "main (train.py:300)")),
        ("collective", (f"barrier ({C10D}:5356)", "save_checkpoint (train.py:163)")),
        ("p2p", (f"recv ({C10D}:2799)", "wrapper (torch/distributed/c10d_logger.py:83)", "pp_recv (train.py:338)")),
        ("p2p", (f"batch_isend_irecv ({C10D}:2654)", "communicate (p2p_communication.py:310)")),
        ("backward", ("_engine_run_backward (torch/autograd/graph.py:979)", "main (train.py:284)")),
        ("device", ("synchronize (torch/cuda/__init__.py:792)", "step (train.py:9)")),
        ("dataloader", ("wait (threading.py:327)", "get (queue.py:171)", "Loader.next_batch (train.py:91)")),
        (
            "dataloader",
            ("poll (multiprocessing/connection.py:257)", "_next_data (torch/utils/data/dataloader.py:1290)"),
        ),
        ("checkpoint", ("write_state (train.py:168)", "save_checkpoint (train.py:162)", "main (train.py:303)")),
        ("checkpoint", ("_save (torch/serialization.py:865)", "main (train.py:3)")),
        ("evaluation", ("forward (model.py:3)", "evaluate (train.py:40)", "main (train.py:9)")),
        ("exception", ("cmdloop (cmd.py:126)", "interaction (pdb.py:360)", "main (train.py:3)")),
        ("logging", ("metrics_rotate (train.py:324)", "metrics_flush (train.py:320)", "main (train.py:295)")),
        ("user", ("kernel (train.py:140)", "main (train.py:263)")),
        ("user", ("wait (threading.py:327)",)),
    ],
)
def test_a_stack_is_of_the_class_of_its_innermost_meaningful_frame(kind: str, frames: tuple[str, ...]) -> None:
    assert classify(frames)[0] == kind


def test_the_call_site_is_the_innermost_frame_of_the_user() -> None:
    assert call_site((f"recv ({C10D}:2799)", "pp_recv (app/train.py:338)", "main (app/train.py:9)")) == (
        "pp_recv (train.py:338)"
    )


def test_equal_stacks_are_put_together_and_the_few_lead(case_of: CaseOf) -> None:
    trace = TraceBuilder(world=3)
    group = trace.group("dp_0", [0, 1, 2], kind="dp")
    for rank in range(3):
        trace.call(rank, group, 1)
        trace.stack(rank, f"all_reduce ({C10D}:1)" if rank else "load (data.py:3)", "main (train.py:2)")
    groups = by_place(case_of(trace).places)
    assert [ranks for _, ranks in groups] == [(0,), (1, 2)]


def test_another_thread_explains_the_wait_of_the_main_one(case_of: CaseOf) -> None:
    trace = TraceBuilder(world=1)
    trace.call(0, trace.group("g", [0]), 1)
    trace.stack(0, "Condition.wait (threading.py:327)", "Loader.next_batch (train.py:91)")
    trace.stack(0, "Loader._read_shard (train.py:73)", "Loader._read (train.py:81)", thread="data-reader")
    assert case_of(trace).places[0].helper == "Loader._read_shard (train.py:73)"


def test_a_helper_that_is_at_rest_explains_nothing(case_of: CaseOf) -> None:
    trace = TraceBuilder(world=1)
    trace.call(0, trace.group("g", [0]), 1)
    trace.stack(0, "Condition.wait (threading.py:327)", "Loader.next_batch (train.py:91)")
    trace.stack(0, "Condition.wait (threading.py:327)", "Queue.put (queue.py:140)", thread="data-reader")
    assert case_of(trace).places[0].helper == ""


def test_who_is_not_where_its_twin_is_stands_out(case_of: CaseOf) -> None:
    trace = TraceBuilder(world=4)
    trace.call(0, trace.group("g", [0, 1, 2, 3]), 1)
    for rank, line in ((0, 281), (1, 284), (2, 281), (3, 258)):
        trace.stack(rank, f"recv ({C10D}:1)", f"main (train.py:{line})")
    places = case_of(trace).places
    assert odd_ones(places, (2, 3), {2: (0,), 3: (1,)}) == (3,)


def test_nobody_stands_out_when_all_do(case_of: CaseOf) -> None:
    trace = TraceBuilder(world=4)
    trace.call(0, trace.group("g", [0, 1, 2, 3]), 1)
    for rank in range(4):
        trace.stack(rank, f"recv ({C10D}:1)", f"main (train.py:{rank})")
    assert odd_ones(case_of(trace).places, (2, 3), {2: (0,), 3: (1,)}) == ()
