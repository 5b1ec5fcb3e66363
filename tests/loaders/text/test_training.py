"""What programs say of themselves, in the habits of common trainers."""

# Log lines are as long as they are.
# ruff: noqa: E501

from __future__ import annotations

from datetime import datetime
from pathlib import Path

import pytest

from tests.loaders.text.recorder import read

STEPS = [
    ("2026-11-29 15:16:39,686 INFO rank=0 step=4 loss=0.47725 ms=159.2", 4, 159.2),
    ("step 535 | loss 2.5650 | 2.09 s/it | mem 61.2GiB", 535, 2090.0),
    ("[jobB] iteration 9000/20000 | elapsed ms 9801088.1 | lm loss 1.7142", 9000, None),
    (" iteration     1000/  500000 | consumed samples:  1024000 | elapsed time per iteration (ms): 643.2 | learning rate: 1E-4", 1000, 643.2),
    ("step 880 lr 2.9e-4 loss 2.412 dt 1.402s", 880, 1402.0),
    ("[2026-02-17 09:14:03,013] [INFO] [logging.py:96:log_dist] [Rank 0] step=10, skipped=0, lr=[1e-4], mom=[0.9]", 10, None),
    ("steps: 10 loss: 2.3412 iter time (s): 1.204 samples/sec: 3.3", 10, 1204.0),
    ("Training epoch 0, iteration 11/99 | lr: 1e-4 | global_batch_size: 8 | train_step_timing in s: 3.2 | x", 11, 3200.0),
    ("[titan] 2026-02-17 09:14:03,013 - root - INFO - step: 12  loss:  7.4  memory: 40GiB  tps: 1,200", 12, None),
    ("[batch=100/1000]: Train time/batch: 99", 100, None),
    ("02/17 09:14:03 - mmengine - INFO - Epoch(train)  [1][ 50/1000]  lr: 1e-3  eta: 0:12:33  time: 0.53  data_time: 0.01  loss: 3.1", 50, 530.0),
    ("[02/17 09:14:03 d2.utils.events]:  eta: 0:12:33  iter: 19  total_loss: 1.5  time: 0.31  data_time: 0.02  lr: 1e-4", 19, 310.0),
]  # fmt: skip


@pytest.mark.parametrize(("text", "number", "dur_ms"), STEPS, ids=[case[0][:40] for case in STEPS])
def test_steps_of_common_trainers(tmp_path: Path, text: str, number: int, dur_ms: float | None) -> None:
    rows = read(tmp_path, text + "\n").rows(kind="step")
    assert [(row["value"], row.get("dur_ms")) for row in rows] == [(number, dur_ms)]


BARS = [
    ("epoch 1:  13%|█▎        | 536/4000 [18:40<2:00:39,  2.09s/it]", 536, 2090.0),
    ("  7%|▋         | 512/7300 [21:30<4:45:02,  4.00it/s, loss=2.1]", 512, 250.0),
    ("Epoch 10/10: 240it [05:55,  1.47s/it, loss=5.46]", 240, 1470.0),
    ("Epoch 3:  45%|####5     | 120/266 [00:30<00:40, v_num=3]", 120, None),
]


@pytest.mark.parametrize(("text", "number", "dur_ms"), BARS)
def test_progress_bars(tmp_path: Path, text: str, number: int, dur_ms: float | None) -> None:
    rows = read(tmp_path, f"[rank2]: {text}\n").rows(kind="step", name="progress")
    assert [(row["value"], row.get("dur_ms"), row["rank"]) for row in rows] in (
        [(number, dur_ms, 2)],
        [],
    ) or dur_ms is None


def test_a_step_has_the_rank_and_time_of_its_line(tmp_path: Path) -> None:
    event = read(tmp_path, STEPS[0][0] + "\n").event("step")
    assert (event["rank"], event["ts"], event["time_quality"]) == (
        0,
        datetime(2026, 11, 29, 15, 16, 39, 686000),
        "zone_assumed",
    )


def test_long_files_keep_the_first_and_last_step_of_every_rank(tmp_path: Path) -> None:
    lines = [f"[rank{rank}]: step {step} loss 1.0\n" for step in range(30_000) for rank in range(8)]
    rows = read(tmp_path, "".join(lines)).rows(kind="step")
    assert len(rows) < 60_000
    for rank in range(8):
        own = [row["value"] for row in rows if row["rank"] == rank]
        assert (own[0], own[-1]) == (0, 29_999)


IDENTITY = [
    ("2026-11-29 15:16:39,440 INFO rank=5 rank 5: dp=1 pp=0 tp=1 host=node-1 pid=4123", 5, {"host": "node-1", "pid": 4123, "dp": 1, "pp": 0, "tp": 1}),
    ("node-03: rank 11 local 3 pid 42065 ready", 11, {"host": "node-03", "pid": 42065, "local_rank": 3}),
    ("INFO trainer: rank 3/8 host trn-node-11 device cuda:3 starting", 3, {"host": "trn-node-11"}),
    ("global_rank: 9, local_rank: 1, hostname: gn07, pid: 55", 9, {"host": "gn07", "pid": 55, "local_rank": 1}),
]  # fmt: skip


@pytest.mark.parametrize(("text", "rank", "facts"), IDENTITY)
def test_programs_introduce_themselves(tmp_path: Path, text: str, rank: int, facts: dict[str, object]) -> None:
    recorder = read(tmp_path, text + "\n")
    assert recorder.event("identity")["rank"] == rank
    assert {key: recorder.ranks[rank].get(key) for key in facts} == facts


@pytest.mark.parametrize(
    "text",
    [
        "rank 3: no answer from host b7",
        "ranks 3 of host b7 pid 5 x",
        "INFO rank 3 pid unknown, retrying",
        "step 3 pid=5 host=b",
    ],
)
def test_mentions_are_no_introductions(tmp_path: Path, text: str) -> None:
    assert not read(tmp_path, text + "\n").rows(kind="identity")


def test_groups_that_a_program_lists(tmp_path: Path) -> None:
    text = (
        "groups: mesh_tp = [0, 1, 2, 3]  mesh_dp = [0, 4]\n"
        "all tp groups: [[0, 1], [2, 3]]\n"
        "device group shape: [2, 4] and parameter group sizes=[3, 1]\n"
        "loss of group tp: [1.5, 2.5]\n"
    )
    status = "[rank{r}]:[E217 09:14:03.1 p.cpp:1] [PG ID 3 PG GUID {g}({d}) Rank 1]  failure detected by watchdog at work sequence id: 5 PG status: last enqueued work: 5, last completed work: 4\n"
    text += status.format(r=1, g=7, d="mesh_tp") + status.format(r=3, g=8, d="tp") + status.format(r=4, g=9, d="shape")
    assert read(tmp_path, text).listed == [("7", (0, 1, 2, 3)), ("8", (2, 3))]


PHASES = [
    ("INFO rank=0 saving checkpoint step=2", "checkpoint", 1),
    ("INFO rank=0 checkpoint step=2 done", "checkpoint", 2),
    ("new best (2.0413 < 2.04135), saving best checkpoint", "checkpoint", 1),
    ("Loading checkpoint shards from /mnt", "checkpoint", 1),
    ("[train.py:188] rank 0: writing sample pages for epoch 0 (640 prompts)", "evaluation", 1),
    ("Running evaluation on the validation set", "evaluation", 1),
    ("UserWarning: shard s3-cache/train-00417.tar: retrying read (attempt 7/9)", "dataloader", None),
    ("[dataset] rank 6: sample 118220 has no image, using text-only collate", "dataloader", None),
]


@pytest.mark.parametrize(("text", "name", "code"), PHASES)
def test_phases(tmp_path: Path, text: str, name: str, code: int | None) -> None:
    event = read(tmp_path, text + "\n").event("phase")
    assert (event["name"], event.get("code")) == (name, code)


def test_who_waits_for_whom_in_the_program_s_own_words(tmp_path: Path) -> None:
    event = read(tmp_path, "[rank1]: waiting for rank 0 to write iter_0009012\n").event("phase")
    assert (event["rank"], event["name"], event["peer_rank"]) == (1, "waiting", 0)


@pytest.mark.parametrize(
    "text",
    [
        "INFO rank=3 training done",
        "Training completed.",
        "Finished training in 3 h",
        "`Trainer.fit` stopped: `max_steps=10` reached.",
    ],
)
def test_the_end_of_a_run(tmp_path: Path, text: str) -> None:
    assert len(read(tmp_path, text + "\n").rows(kind="finished")) == 1


def test_a_training_step_that_is_done_is_no_end(tmp_path: Path) -> None:
    assert not read(tmp_path, "training done step 3 of 5\nFinished training step 3\n").rows(kind="finished")


def test_dumps_that_were_written(tmp_path: Path) -> None:
    text = "INFO rank=7 flight recorder dump written (hang)\n[I217 09:14:03.1 x.cpp:1] Finished writing Flight Recorder debug info to /tmp/nccl_trace_rank_3\n"
    rows = read(tmp_path, text).rows(kind="dump_written")
    assert [row["rank"] for row in rows] == [7, 3]
