#!/usr/bin/env python3
"""Runs a small training job on CPU (torch.distributed over gloo) with a planted fault and collects its evidence.

    python gloo_job.py OUT --fault dataloader --fault-rank 5 [--tp 2 --pp 2 --dp 2] [--no-stacks]

Needs torch (CPU is enough) and, for stacks, py-spy. Writes OUT/fr/nccl_trace_rank_<r>, OUT/pyspy/rank_<r>.txt,
OUT/logs/rank_<r>.log, OUT/job.json, OUT/snapshot.json and OUT/truth.json. Real processes, real dumps: what the
recorder shows is not modelled. The cases in ../gloo_cases were made with it.
"""

import argparse
import json
import logging
import multiprocessing
import os
import queue
import signal
import subprocess
import threading
import time
from pathlib import Path

FAULTS = {
    "none": "healthy",
    "running": "healthy",
    "hiccup": "healthy",
    "dataloader": "rank_missing",
    "slow_dataloader": "slow_dataloader",
    "straggler": "straggler",
    "exception": "exception",
    "sigstop": "process_stopped",
    "sigkill": "process_died",
    "extra_barrier": "off_by_one",
    "extra_all_reduce": "off_by_one",
    "lone_barrier": "off_by_one",
    "skipped": "off_by_one",
    "dtype": "dtype_mismatch",
    "type": "type_mismatch",
    "size": "size_mismatch",
    "uneven": "uneven_inputs",
    "early_exit": "uneven_inputs",
    "evaluation": "user code branch divergence",
    "pg_order": "group_order",
    "microbatch": "p2p_mismatch",
    "checkpoint": "rank_missing",
    "lock": "rank_missing",
    "two": "two faults",
}
MID_RUN = ("running", "straggler", "slow_dataloader", "hiccup")


def layout(a):
    def at(d, p, t):
        return (d * a.pp + p) * a.tp + t

    groups = [("default_pg", list(range(a.world)))]
    places = [(d, p) for d in range(a.dp) for p in range(a.pp)]
    groups += [(f"tp_{i}", [at(d, p, t) for t in range(a.tp)]) for i, (d, p) in enumerate(places)]
    places = [(d, t) for d in range(a.dp) for t in range(a.tp)]
    groups += [(f"pp_{i}", [at(d, p, t) for p in range(a.pp)]) for i, (d, t) in enumerate(places)]
    places = [(p, t) for p in range(a.pp) for t in range(a.tp)]
    return groups + [(f"dp_{i}", [at(d, p, t) for d in range(a.dp)]) for i, (p, t) in enumerate(places)]


# ---- one rank ------------------------------------------------------------------------------------------------


class Reader:
    """A data loader with a reader thread and a short queue."""

    def __init__(self, a, rank, faulty):
        self.a, self.rank, self.faulty, self.n = a, rank, faulty, 0
        self.queue = queue.Queue(maxsize=1)
        threading.Thread(target=self.read_forever, name="data-reader", daemon=True).start()

    def read_shard(self):
        self.n += 1
        if self.faulty and self.a.fault in ("dataloader", "two") and self.n > self.a.fault_step * self.a.microbatches:
            while True:
                time.sleep(1)
        time.sleep(0.12 if self.faulty and self.a.fault == "slow_dataloader" else 0.002)
        if self.faulty and self.a.fault == "hiccup" and self.n == 3:
            time.sleep(0.6)
        return self.n

    def read_forever(self):
        while True:
            self.queue.put(self.read_shard())

    def next_batch(self):
        import torch

        if self.faulty and self.a.fault == "uneven" and self.n >= self.a.fault_step * self.a.microbatches + 1:
            raise StopIteration
        self.queue.get()
        return torch.ones(4, 16)


class Trainer:
    def __init__(self, a, rank):
        import torch
        import torch.distributed as dist

        self.a, self.rank, self.torch, self.dist = a, rank, torch, dist
        self.log = logging.getLogger("train")
        dist.init_process_group("gloo", rank=rank, world_size=a.world)
        self.group, self.ranks = {}, {}
        for name, ranks in layout(a)[1:]:
            pg = dist.new_group(ranks, group_desc=name)
            if rank in ranks:
                self.group[name.split("_")[0]], self.ranks[name.split("_")[0]] = pg, ranks
        if a.fault == "pg_order":
            self.two = [dist.new_group(list(range(a.world)), group_desc=n) for n in ("grad_0", "metric_0")]
        self.stage = self.ranks["pp"].index(rank)
        self.first, self.last = self.stage == 0, self.stage == a.pp - 1
        self.me = rank == a.fault_rank
        model = torch.nn.Sequential(torch.nn.Linear(16, 16), torch.nn.Linear(16, 16))
        self.model = torch.nn.parallel.DistributedDataParallel(model, process_group=self.group["dp"])
        self.data = Reader(a, rank, self.me) if self.first else None
        self.lock = threading.Lock()
        self.step = 0

    @property
    def hot(self):
        return self.me and self.step == self.a.fault_step

    def kernel(self, ms):
        time.sleep(ms * (3 if self.me and self.a.fault == "straggler" else 1) / 1000)

    def receive(self, peer):
        x = self.torch.zeros(4, 16)
        self.dist.recv(x, src=peer, group=self.group["pp"])
        return x

    def transmit(self, x, peer):
        self.dist.send(x, dst=peer, group=self.group["pp"])

    def reduce_tensor_parallel(self, x, micro):
        x = x.detach().clone()
        if self.a.fault == "two" and self.rank == self.a.second_rank and self.step == self.a.fault_step:
            self.flush_metrics()
        if self.hot and micro == 1:
            if self.a.fault == "size":
                x = self.torch.ones(5, 16)
            if self.a.fault == "dtype":
                x = x.double()
            if self.a.fault == "type":
                self.dist.broadcast(x, src=self.ranks["tp"][0], group=self.group["tp"])
                return x
            if self.a.fault == "exception":
                raise ValueError(f"negative learning rate in group {micro}")
        self.dist.all_reduce(x, group=self.group["tp"])
        return x

    def flush_metrics(self):
        self.lock.acquire()
        self.lock.acquire()

    def evaluate(self):
        while True:
            self.kernel(20)

    def write_checkpoint(self):
        time.sleep(3600)

    def save_checkpoint(self):
        if self.hot and self.a.fault == "checkpoint":
            self.write_checkpoint()
        self.dist.barrier()

    def train_step(self):
        a, rank = self.a, self.rank
        prev = rank if self.first else self.ranks["pp"][self.stage - 1]
        nxt = rank if self.last else self.ranks["pp"][self.stage + 1]
        micro = a.microbatches + (1 if a.fault == "microbatch" and self.hot else 0)
        outputs = []
        for m in range(micro):
            x = self.data.next_batch() if self.first else self.receive(prev)
            self.kernel(8)
            if self.hot and m == 1 and a.fault == "sigkill":
                os.kill(os.getpid(), signal.SIGKILL)
            if self.hot and m == 1 and a.fault == "sigstop":
                os.kill(os.getpid(), signal.SIGSTOP)
            x = self.reduce_tensor_parallel(x, m)
            with self.model.no_sync() if m < micro - 1 else contextlib_null():
                outputs.append(self.model(x))
            if not self.last:
                self.transmit(outputs[-1].detach(), nxt)
        for m, y in enumerate(outputs):
            if not self.last:
                self.receive(nxt)
            self.kernel(12)
            if m == len(outputs) - 1:
                y.sum().backward()
            if not self.first:
                self.transmit(self.torch.zeros(4, 16), prev)
        loss = self.torch.zeros(1)
        if self.hot and a.fault == "extra_barrier":
            self.dist.barrier()
        if self.hot and a.fault == "extra_all_reduce":
            self.dist.all_reduce(self.torch.zeros(1))
        if self.hot and a.fault == "lock":
            self.flush_metrics()
        if self.hot and a.fault == "evaluation":
            self.evaluate()
        if a.fault == "pg_order":
            for pg in self.two[::-1] if self.hot else self.two:
                self.dist.all_reduce(self.torch.zeros(8), group=pg)
        if not (self.hot and a.fault == "skipped"):
            self.dist.all_reduce(loss)

    def run(self):
        for step in range(self.a.steps):
            self.step = step
            begin = time.time()
            try:
                self.train_step()
            except StopIteration:
                self.log.info("data exhausted after step %d", self.step)
                break
            self.log.info("step=%d loss=%.5f ms=%.1f", self.step, 0.5, (time.time() - begin) * 1e3)
            if self.step % 3 == 2:
                self.save_checkpoint()
            if self.hot and self.a.fault == "early_exit":
                self.log.info("training done")
                return
        self.dist.barrier()
        if self.me and self.a.fault == "lone_barrier":
            self.dist.barrier()
        self.log.info("training done")


def contextlib_null():
    import contextlib

    return contextlib.nullcontext()


def dump(out, rank, why):
    import torch

    data = torch._C._distributed_c10d._dump_fr_trace(True, True, False)
    target = out / "fr" / f"nccl_trace_rank_{rank}"
    target.with_suffix(".part").write_bytes(data)
    target.with_suffix(".part").rename(target)
    logging.getLogger("train").info("flight recorder dump written (%s)", why)


def watch(out, rank):
    while not (out / "dump_now").exists():
        time.sleep(0.05)
    dump(out, rank, "request")


def one_rank(a, rank):
    out = Path(a.out)
    log = os.open(out / "logs" / f"rank_{rank}.log", os.O_WRONLY | os.O_CREAT)
    os.dup2(log, 1)
    os.dup2(log, 2)
    logging.basicConfig(level=logging.INFO, format=f"%(asctime)s %(levelname)s rank={rank} %(message)s")
    dp, pp, tp = rank // (a.tp * a.pp), rank // a.tp % a.pp, rank % a.tp
    where = f"dp={dp} pp={pp} tp={tp} host=node-{rank // 4} pid={os.getpid()}"
    logging.getLogger("train").info("rank %d: %s", rank, where)
    threading.Thread(target=watch, args=(out, rank), name="dump-watch", daemon=True).start()
    try:
        Trainer(a, rank).run()
    except Exception as error:
        word = "communication error" if "gloo" in str(error) else "error"
        logging.getLogger("train").exception("%s: %s", word, error)
        dump(out, rank, "exception")
        os._exit(1)
    (out / f"done.{rank}").touch()
    if a.fault == "early_exit" and rank == a.fault_rank:
        dump(out, rank, "end")
        os._exit(0)
    while True:
        time.sleep(1)


# ---- the launcher --------------------------------------------------------------------------------------------


class Rank:
    """One forked rank, with the few methods of a Popen that are used."""

    def __init__(self, process):
        self.process = process
        process.daemon = True
        process.start()
        self.pid = process.pid

    def poll(self):
        return self.process.exitcode

    def end(self):
        if self.process.exitcode is None:
            self.process.kill()
        self.process.join()


def launch(a):
    out = Path(a.out)
    for name in ("fr", "logs", "pyspy"):
        (out / name).mkdir(parents=True)
    port = 20000 + os.getpid() % 20000
    os.environ.update({"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "TORCH_FR_BUFFER_SIZE": str(a.buffer),
                       "GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1", "TORCH_CPP_LOG_LEVEL": "INFO"})  # fmt: skip
    # Imported once and inherited by every rank: DDP imports the compiler, which takes seconds.
    import torch._dynamo
    import torch.distributed  # noqa: F401

    fork = multiprocessing.get_context("fork")
    ranks = [Rank(fork.Process(target=one_rank, args=(a, rank))) for rank in range(a.world)]
    deadline = time.time() + a.wait
    settle = None
    while time.time() < deadline:
        time.sleep(0.2)
        ended = [p.poll() for p in ranks]
        done = [(out / f"done.{r}").exists() for r in range(a.world)]
        if settle is None and (any(c not in (None, 0) for c in ended) or all(done)):
            settle = time.time() + 3
        if settle is not None and time.time() > settle:
            break
        told = (out / "logs" / "rank_0.log").read_text(errors="replace")
        if a.fault in MID_RUN and f"step={a.steps // 2} " in told:
            break
    (out / "dump_now").touch()
    time.sleep(1.0)
    now = time.time()
    alive = [r for r, p in enumerate(ranks) if p.poll() is None]
    if a.stacks:
        for r in alive:
            command = [a.py_spy, "dump", "--nonblocking", "--pid", str(ranks[r].pid)]
            got = subprocess.run(command, capture_output=True, text=True)
            if got.returncode == 0:
                (out / "pyspy" / f"rank_{r}.txt").write_text(got.stdout)
    time.sleep(1.0 if a.fault in MID_RUN else 0.0)
    codes = {str(r): p.poll() for r, p in enumerate(ranks) if p.poll() is not None}
    for p in ranks:
        p.end()
    done = [r for r in range(a.world) if (out / f"done.{r}").exists()]
    for path in [*out.glob("done.*"), out / "dump_now"]:
        path.unlink()
    if not any((out / "pyspy").iterdir()):
        (out / "pyspy").rmdir()
    snapshot = {"snapshot_unix": round(now, 3), "alive_at_snapshot": alive, "done_at_snapshot": done}
    (out / "snapshot.json").write_text(json.dumps({**snapshot, "exit_code_before_cleanup": codes}) + "\n")
    job = {"world_size": a.world, "tp": a.tp, "pp": a.pp, "dp": a.dp, "rank_order": "tp-pp-dp (tp fastest)"}
    job |= {"ranks_per_node": 4, "backend": "gloo"}
    job["groups"] = [{"name": str(i), "desc": d, "ranks": r} for i, (d, r) in enumerate(layout(a))]
    (out / "job.json").write_text(json.dumps(job) + "\n")
    guilty = [] if FAULTS[a.fault] == "healthy" else [a.fault_rank]
    truth = {"scenario": a.fault, "category": FAULTS[a.fault], "root_cause": {"ranks": guilty, "hosts": []}}
    if a.fault == "two":
        truth["root_causes"] = [{"ranks": [r], "hosts": []} for r in (a.fault_rank, a.second_rank)]
    (out / "truth.json").write_text(json.dumps(truth, indent=1) + "\n")


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("out")
    ap.add_argument("--fault", choices=sorted(FAULTS), default="none")
    ap.add_argument("--fault-rank", type=int, default=5)
    ap.add_argument("--second-rank", type=int, default=0)
    ap.add_argument("--fault-step", type=int, default=4)
    ap.add_argument("--tp", type=int, default=2)
    ap.add_argument("--pp", type=int, default=2)
    ap.add_argument("--dp", type=int, default=2)
    ap.add_argument("--steps", type=int, default=12)
    ap.add_argument("--microbatches", type=int, default=2)
    ap.add_argument("--buffer", type=int, default=2000)
    ap.add_argument("--wait", type=float, default=14.0, help="seconds after which a job that stands still is dumped")
    ap.add_argument("--py-spy", default="py-spy", help="the program that takes stacks")
    ap.add_argument("--no-stacks", dest="stacks", action="store_false")
    a = ap.parse_args()
    a.world = a.tp * a.pp * a.dp
    launch(a)


if __name__ == "__main__":
    main()
