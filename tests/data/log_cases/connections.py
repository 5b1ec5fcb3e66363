"""What fails between processes: ports, links, interfaces, addresses and the store of a start."""

# Log lines are as long as they are.
# ruff: noqa: E501

from __future__ import annotations

from tests.data.log_cases.case import Case, truth


def port_error_223() -> Case:
    """Four nodes of Megatron, NCCL 2.23 under torchrun --tee: a port of one host goes, no other evidence."""
    lines: list[str] = []
    hosts = ("tg031", "tg032", "tg033", "tg034")
    for rank in range(16):
        host, pid = hosts[rank // 4], 71000 + rank * 3
        head = f"[default{rank % 4}]:{host}:{pid}:{pid + 900} [{rank % 4}] NCCL INFO"
        lines.append(f"{head} Bootstrap: Using ib0:172.16.8.{31 + rank // 4}<0>")
        lines.append(
            f"{head} NET/IB : Using [0]mlx5_0:1/IB [1]mlx5_1:1/IB [2]mlx5_4:1/IB [3]mlx5_5:1/IB [RO]; OOB ib0:172.16.8.{31 + rank // 4}<0>"
        )
        lines.append(
            f"{head} ncclCommInitRankConfig comm 0x{rank:x}b91e0 rank {rank} nranks 16 cudaDev {rank % 4} nvmlDev {rank % 4} busId {(1, 4, 8, 12)[rank % 4]:x}1000 commId 0x77c1d5e0aa31904b - Init COMPLETE"
        )
    for step in range(3):
        lines.append(
            f"[default3]: iteration {1200 + step}/ 50000 | consumed samples: {(1200 + step) * 512} | elapsed time per iteration (ms): 8127.4 | learning rate: 1.2E-04 | lm loss: 2.31{step}E+00 |"
        )
    lines.append("[default2]:")
    lines.append(
        "[default2]:tg033:71030:72122 [2] transport/net_ib.cc:1299 NCCL WARN NET/IB : mlx5_5:1 Got async error event: port error"
    )
    for rank, peer in ((8, 32), (4, 33), (12, 33), (10, 34)):
        host, pid = hosts[rank // 4], 71000 + rank * 3
        lines.append(f"[default{rank % 4}]:")
        lines.append(
            f"[default{rank % 4}]:{host}:{pid}:{pid + 1200} [{rank % 4}] transport/net_ib.cc:1903 NCCL WARN NET/IB: Got completion from peer 172.16.8.{peer}<47{rank:02d}9> with status=12 opcode=0 len=0 vendor err 129 (Recv) localGid fe80::1 remoteGids fe80::2 hca mlx5_5"
        )
    for rank in (0, 5, 12):
        lines.append(
            f"[default{rank % 4}]:[rank{rank}]:[E612 22:14:5{rank % 10}.118220431 ProcessGroupNCCL.cpp:616] [Rank {rank}] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=33810, OpType=_REDUCE_SCATTER_BASE, NumelIn=134217728, NumelOut=8388608, Timeout(ms)=1800000) ran for 18000{rank + 20} milliseconds before timing out."
        )
    return {"megatron.log": "\n".join(lines) + "\n"}, truth(
        "mlx5_5 of tg033 lost its port",
        "NIC or IB link error",
        hosts=("tg033",),
        mention=("tg033", "mlx5_5"),
        spare=(0, 4, 12),
        spare_hosts=("tg032", "tg034"),
    )


def roce_down_229() -> Case:
    """NCCL 2.29 in pods (CRI logs), RoCE: an Ethernet link goes down; dmesg -T of the nodes."""
    files: dict[str, str] = {}
    for pod in range(4):
        t = f"2026-08-20T06:4{pod}:00.00000000{pod}Z"
        out: list[str] = []
        for local in range(2):
            rank, pid = pod * 2 + local, 90 + local
            head = f"{t} stdout F"
            out.append(
                f"{head} llama-{pod}:{pid}:{pid + 40} [{local}] NCCL INFO Bootstrap: Using eth0:10.244.{pod}.9<0>"
            )
            out.append(
                f"{head} llama-{pod}:{pid}:{pid + 40} [{local}] NCCL INFO NET/IB : Using [0]mlx5_0:1/RoCE [1]mlx5_1:1/RoCE [RO]; OOB eth0:10.244.{pod}.9<0>"
            )
            out.append(
                f"{head} llama-{pod}:{pid}:{pid + 40} [{local}] NCCL INFO ncclCommInitRankConfig comm 0x5{rank}c0 rank {rank} nranks 8 cudaDev {local} nvmlDev {local} busId {('1b', '43')[local]}000 commId 0x10c9d37be2aa4f11 - Init COMPLETE"
            )
        files[f"pods/llama-{pod}_train.log"] = ""
        late = "2026-08-20T07:02:1"
        if pod == 2:
            out.append(f"{late}1.000000001Z stderr F ")
            out.append(
                f"{late}1.000000002Z stderr F [2026-08-20 07:02:11] llama-2:90:188 [0] transport/net_ib/common.cc:211 (ncclIbAsyncThreadMain) NCCL WARN NET/IB : mlx5_1:1 Got non-fatal async event: port error(10)"
            )
        for me, peer in ((1, 2), (3, 2)):
            if pod == me:
                out.append(f"{late}8.000000001Z stderr F ")
                out.append(
                    f"{late}8.000000002Z stderr F [2026-08-20 07:02:18] llama-{me}:91:199 [1] transport/net_ib/p2p.cc:604 (ncclIbTest) NCCL WARN NET/IB: Got completion from peer 10.244.{peer}.9<52110> with status=IBV_WC_RETRY_EXC_ERR(12) opcode=IBV_WC_RDMA_WRITE(1) vendor_err=129  localGid ::ffff:192.168.9.{me} remoteGids ::ffff:192.168.9.{peer} hca mlx5_1"
                )
        if pod != 2:
            for local in range(2):
                rank = pod * 2 + local
                out.append(
                    f"2026-08-20T07:12:0{rank}.000000001Z stderr F [rank{rank}]:[E820 07:12:0{rank}.000118220 ProcessGroupNCCL.cpp:757] [Rank {rank}] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=5120, OpType=ALLREDUCE, NumelIn=1048576, NumelOut=1048576, Timeout(ms)=600000) ran for 60004{rank} milliseconds before timing out."
                )
        files[f"pods/llama-{pod}_train.log"] = "\n".join(out) + "\n"
    files["dmesg/k8s-node-c.txt"] = (
        "[Thu Aug 20 07:02:10 2026] mlx5_core 0000:9b:00.1 ens5f1np1: Link down\n"
        "[Thu Aug 20 07:02:10 2026] mlx5_core 0000:9b:00.1: Port module event: module 1, Cable unplugged\n"
    )
    files["kubectl-get-pods.txt"] = (
        "NAME      READY   STATUS    RESTARTS   AGE   IP            NODE         NOMINATED NODE   READINESS GATES\n"
        + "".join(
            f"llama-{p}   1/1     Running   0          3h    10.244.{p}.9    k8s-node-{'abcd'[p]}   <none>           <none>\n"
            for p in range(4)
        )
    )
    return files, truth(
        "The RoCE link of pod llama-2 on k8s-node-c went down",
        "NIC or IB link error",
        hosts=("llama-2",),
        mention=("llama-2", "mlx5_1"),
        spare_hosts=("llama-1", "llama-3"),
    )


def retry_both_ways() -> Case:
    """Errors between two hosts only, both accuse each other, no local event: the link between, not one host."""
    lines: list[str] = []
    for rank in range(8):
        host = f"r1-{rank // 2 + 1}"
        lines.append(
            f"{host}:{80 + rank}:{180 + rank} [{rank % 2}] NCCL INFO Bootstrap : Using bond0:10.50.0.{rank // 2 + 1}<0>"
        )
        lines.append(
            f"{host}:{80 + rank}:{180 + rank} [{rank % 2}] NCCL INFO ncclCommInitRank comm 0x{rank}f rank {rank} nranks 8 cudaDev {rank % 2} nvmlDev {rank % 2} busId {('1b', '43')[rank % 2]}000 commId 0x8ad01c22e9b3f7d4 - Init COMPLETE"
        )
    for rank, me, peer in ((2, 2, 4), (6, 4, 2)):
        lines += [
            "",
            f"r1-{me}:{80 + rank}:{280 + rank} [0] transport/net_ib.cc:1295 NCCL WARN NET/IB : Got completion from peer 10.50.0.{peer}<4810> with status=12 opcode=0 len=0 vendor err 129 (Send) localGid ::ffff:10.50.0.{me} remoteGids::ffff:10.50.0.{peer} hca mlx5_0",
        ]
    known = truth(
        "The link between r1-2 and r1-4 failed",
        "NIC or IB link error",
        hosts=("r1-2", "r1-4"),
        mention=("r1-2", "r1-4"),
        spare_hosts=("r1-1", "r1-3"),
    )
    return {"nccl.log": "\n".join(lines) + "\n"}, known


def issue_page() -> Case:
    """Quoted from the page of an issue, which makes links of file names: the port of one of two hosts failed."""

    def link(text: str) -> str:
        return f"[{text}](http://{text}/)"

    out: list[str] = []
    for rank, (host, pid, ip) in enumerate((("node201", 127799, "10.1.3.201"), ("node023", 10214, "10.1.3.23"))):
        out += [
            f"{host}:{pid}:{pid} [0] NCCL INFO Bootstrap : Using bond0:{ip}<0>",
            f"{host}:{pid}:{pid + 2} [0] NCCL INFO NET/IB : Using [0]mlx5_0:1/RoCE [1]mlx5_1:1/RoCE [RO]; OOB bond0:{ip}<0>",
            f"{host}:{pid}:{pid + 2} [0] NCCL INFO comm 0x55d0c{pid:x} rank {rank} nranks 2 cudaDev 0 nvmlDev 0 busId 18000 commId 0xa1b2c3d4e5f60718 - Init COMPLETE",
        ]
    for _ in range(3):
        out += [
            "",
            f"node201:127799:127863 [0] transport/{link('net_ib.cc:101')} NCCL WARN NET/IB : mlx5_0:1 Got async event : port error",
        ]
    for port in (33057, 33061):
        out += [
            "",
            f"node023:10214:10303 [0] transport/{link('net_ib.cc:1909')} NCCL WARN NET/IB : Got completion from peer {link('10.1.3.201')}<{port}> with status=12 opcode=0 len=0 vendor err 129 (Send) localGid ::ffff:{link('10.206.1.23')} remoteGids::ffff:{link('10.206.1.11')} hca mlx5_0",
            f"node023:10214:10303 [0] NCCL INFO transport/{link('net.cc:1137')} -> 6",
        ]
    page = "Hi, our all-reduce fails:\n\n" + "".join(f"> {line}\n" for line in out) + "\nHappens every day. Any hint?\n"
    return {"issue.md": page}, truth(
        "The port of node201 failed",
        "NIC or IB link error",
        hosts=("node201",),
        mention=("mlx5_0",),
        spare_hosts=("node023",),
    )


def host_on_sockets() -> Case:
    """NCCL 2.27 with a time in front of every line: one host finds no InfiniBand device, and no rank comes up."""
    out: list[str] = []

    def add(host: str, pid: int, local: int, text: str) -> None:
        out.append(f"[2026-05-05 11:22:01.{len(out):06d}] {host}:{pid}:{pid + 3} [{local}] NCCL INFO {text}")

    for rank in range(8):
        node, local = divmod(rank, 2)
        host, pid, ip = f"c{node + 1}", 900 + node + 100 * local, f"172.20.0.{node + 11}"
        add(host, pid, local, f"Bootstrap: Using ens3:{ip}<0>")
        if node == 2:
            add(host, pid, local, "NET/IB : No device found.")
            add(host, pid, local, f"NET/Socket : Using [0]ens3:{ip}<0>")
        else:
            add(host, pid, local, f"NET/IB : Using [0]mlx5_2:1/IB [1]mlx5_5:1/IB [RO]; OOB ens3:{ip}<0>")
        add(host, pid, local, f"Using network {'Socket' if node == 2 else 'IB'}")
        bus = ("1b000", "43000")[local]
        add(
            host,
            pid,
            local,
            f"[Rank {rank}] ncclCommInitRankConfig comm 0x5581{rank}0 rank {rank} nranks 8 cudaDev {local} nvmlDev {local} busId {bus} commId 0x91ab3c4d5e6f7081 - Init START",
        )
    out += [
        f"[rank{rank}]: torch.distributed.DistBackendError: NCCL error in: /pytorch/torch/csrc/distributed/c10d/NCCLUtils.cpp:94, internal error - please report this issue to the NCCL developers, NCCL version 2.27.5"
        for rank in (0, 1, 2, 3, 6, 7)
    ]
    return {"train.out": "\n".join(out) + "\n"}, truth(
        "c3 has no InfiniBand device and takes sockets",
        "misconfigured interface",
        ranks=(4, 5),
        hosts=("c3",),
        mention=("NET/Socket",),
        spare_hosts=("c1", "c2", "c4"),
    )


def wrong_interface_224() -> Case:
    """Pods read by stern, NCCL 2.24: one pod bootstraps over docker0, whose address nobody reaches."""
    lines: list[str] = []
    for rank in range(8):
        pod = f"trainer-{rank // 2}"
        using = "docker0:172.17.0.1" if rank // 2 == 3 else f"eth0:10.32.7.{10 + rank // 2}"
        net = "docker0:172.17.0.1<0>" if rank // 2 == 3 else f"eth0:10.32.7.{10 + rank // 2}<0>"
        head = f"{pod} pytorch {pod}:{41 + rank % 2}:{97 + rank % 2} [{rank % 2}] NCCL INFO"
        lines.append(f"{head} Bootstrap: Using {using}<0>")
        lines.append(f"{head} NET/Socket : Using [0]{net}")
        lines.append(
            f"{head} ncclCommInitRank comm 0x{rank}aa1 rank {rank} nranks 8 cudaDev {rank % 2} nvmlDev {rank % 2} busId {('1b', '43')[rank % 2]}000 commId 0x51d21c70ee90ab13 - Init START"
        )
    for rank in (0, 4, 5):
        pod = f"trainer-{rank // 2}"
        lines.append(f"{pod} pytorch ")
        lines.append(
            f"{pod} pytorch [2026-02-02 02:02:0{rank}] {pod}:{41 + rank % 2}:{99 + rank % 2} [{rank % 2}] misc/socket.cc:587 NCCL WARN socketPollConnect: connect to 172.17.0.1<4{rank}901> returned Connection refused, exceeded error retry count after 35 attempts"
        )
        lines.append(
            f"{pod} pytorch {pod}:{41 + rank % 2}:{99 + rank % 2} [{rank % 2}] NCCL INFO misc/socket.cc:663 -> 6"
        )
    return {"stern.log": "\n".join(lines) + "\n"}, truth(
        "trainer-3 uses docker0, whose address the others cannot reach",
        "misconfigured interface",
        ranks=(6, 7),
        hosts=("trainer-3",),
        mention=("docker0", "172.17.0.1"),
        spare=(0, 4),
    )


def store_clients() -> Case:
    """torchrun 2.6 on four nodes: one node never joins the store."""
    lines: list[str] = []
    for rank in range(24):
        lines.append(
            f"n{rank // 8}: [rank{rank}]: init_process_group: rank {rank} of 32, local rank {rank % 8}, host n{rank // 8}"
        )
    lines += [
        "n0: [rank0]: Traceback (most recent call last):",
        'n0: [rank0]:   File "/app/main.py", line 12, in <module>',
        'n0: [rank0]:     dist.init_process_group("nccl")',
        "n0: [rank0]: torch.distributed.DistStoreError: Timed out after 601 seconds waiting for clients. 24/32 clients joined.",
    ]
    return {"clush.log": "\n".join(lines) + "\n"}, truth(
        "24 of 32 clients joined: the ranks of the fourth node never came",
        "timeouts at init",
        ranks=tuple(range(24, 32)),
        mention=("24/32",),
        spare=(0,),
    )


def tcpstore_master_late() -> Case:
    """Every worker fails to reach the master's port: the master's host is named, not those that print it."""
    lines = [
        f"w{n}: [rank{n}]: torch.distributed.DistNetworkError: The client socket has timed out after 60000ms while trying to connect to (w0, 29400)."
        for n in (1, 2, 3)
    ]
    lines += [
        f"w{n}: [W110 09:00:0{n}.402118220 socket.cpp:697] [c10d] The client socket has failed to connect to [w0]:29400 (errno: 111 - Connection refused)."
        for n in (1, 2, 3)
    ]
    return {"pdsh.log": "\n".join(sorted(lines)) + "\n"}, truth(
        "Nobody reaches the store on w0", "timeouts at init", hosts=("w0",), mention=("w0", "29400"), spare=(1, 2, 3)
    )


def address_in_use() -> Case:
    """torchrun of torch 2.5: the store's port is taken by a process of an older job."""
    log = (
        "[W1014 08:00:01.402118220 socket.cpp:755] [c10d] The server socket has failed to listen on [::]:29500 (errno: 98 - Address already in use).\n"
        "[W1014 08:00:01.402122220 socket.cpp:755] [c10d] The server socket has failed to bind to 0.0.0.0:29500 (errno: 98 - Address already in use).\n"
        "[E1014 08:00:01.402130220 socket.cpp:791] [c10d] The server socket has failed to listen on any local network address.\n"
        "[rank0]: Traceback (most recent call last):\n"
        '[rank0]:   File "/app/train.py", line 31, in <module>\n'
        '[rank0]:     dist.init_process_group("nccl")\n'
        "[rank0]: torch.distributed.DistNetworkError: The server socket has failed to listen on any local network address. port: 29500, useIpv6: false, code: -98, name: EADDRINUSE, message: address already in use\n"
        "W1014 08:00:02.010000 7700 site-packages/torch/distributed/elastic/multiprocessing/api.py:897] Sending process 7741 closing signal SIGTERM\n"
        "W1014 08:00:02.010000 7700 site-packages/torch/distributed/elastic/multiprocessing/api.py:897] Sending process 7742 closing signal SIGTERM\n"
        "E1014 08:00:02.310000 7700 site-packages/torch/distributed/elastic/multiprocessing/api.py:869] failed (exitcode: 1) local_rank: 0 (pid: 7740) of binary: /usr/bin/python3\n"
        "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: \n"
        + "=" * 60
        + "\ntrain.py FAILED\n"
        + "-" * 60
        + "\nFailures:\n  <NO_OTHER_FAILURES>\n"
        + "-" * 60
        + "\nRoot Cause (first observed failure):\n[0]:\n"
        "  time      : 2026-10-14_08:00:02\n  host      : box-9\n  rank      : 0 (local_rank: 0)\n  exitcode  : 1 (pid: 7740)\n  error_file: <N/A>\n  traceback : To enable traceback see: https://pytorch.org/docs/stable/elastic/errors.html\n"
        + "=" * 60
        + "\n"
    )
    return {"torchrun.txt": log}, truth(
        "Port 29500 on box-9 is in use", "timeouts at init", ranks=(0,), hosts=("box-9",), mention=("EADDRINUSE",)
    )


def version_skew() -> Case:
    """Two builds of NCCL in one job: the node with the other one is named by the library itself."""
    lines: list[str] = []
    for rank in range(8):
        host = f"mx{rank // 2}"
        version = "2.18.5+cuda12.1" if rank // 2 == 3 else "2.21.5+cuda12.4"
        lines.append(f"[1,{rank}]<stdout>:{host}:{50 + rank}:{50 + rank} [{rank % 2}] NCCL INFO NCCL version {version}")
        lines.append(
            f"[1,{rank}]<stdout>:{host}:{50 + rank}:{90 + rank} [{rank % 2}] NCCL INFO Bootstrap : Using ib0:10.7.0.{rank // 2 + 1}<0>"
        )
    for rank in (6, 7):
        lines.append(
            f"[1,{rank}]<stderr>:mx3:{50 + rank}:{90 + rank} [{rank % 2}] init.cc:812 NCCL WARN Mismatched NCCL version detected : rank {rank} version 21805 rank 0 version 21205"
        )
    return {"mpi.log": "\n".join(lines) + "\n"}, truth(
        "mx3 runs another NCCL", "misconfigured interface", ranks=(6, 7), hosts=("mx3",), mention=("mx3",), spare=(0,)
    )
