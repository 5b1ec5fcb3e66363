"""Start-up: a host that offers an address nobody can reach, and hosts that nobody can reach.

The rank that prints "no route to host" is on the healthy side: the *target* offered an address of the wrong
interface, or is not there. Bootstrap lines give the interface and address of every host; the one whose subnet differs,
whose interface is a bridge of containers, or whose address is the unreachable one, is misconfigured.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from typing import Final

from mycroft.analysis.claims import Claim, Suspicion
from mycroft.analysis.machine import Machine, Row, some

# Interfaces and addresses that no other host can reach.
_LOCAL_INTERFACE: Final = re.compile(r"^(?:docker|br-|virbr|veth|lo$|lo:|cni|flannel|podman|lxc|tunl|kube)")
_LOCAL_ADDRESS: Final = re.compile(r"^(?:127\.|169\.254\.|::1|fe80)")

# [w0]:29400 and (w0, 29400), as torch writes it.
_STORE: Final = re.compile(r"[\[(]?([\w.:-]*[\w-])[\])]?\s*[:,]\s*\d{1,5}\)?$")
_LEAST_REPORTERS: Final = 2
# More ranks than this on one GPU are a program that never chose one.
_MOST_ON_ONE: Final = 8
_MOST_CLIENTS: Final = 100_000


def subnet(address: str) -> str:
    """Return the first three numbers of an IPv4 address; the address itself for anything else."""
    match = re.match(r"^(\d{1,3}\.\d{1,3}\.\d{1,3})\.\d{1,3}$", address)
    return match[1] if match else address


def suspicions(machine: Machine) -> list[Suspicion]:
    """Return the host with the wrong interface, or the one that cannot be reached while the job starts."""
    up = {machine.host_of(row) for row in machine.of("comm_init") if row.name == "complete"}
    offers: dict[str, Row] = {}
    for row in machine.of("identity"):
        if row.name == "address" and row.detail == "bootstrap" and row.host and row.host not in up:
            offers.setdefault(row.host, row)
    refused: dict[str, list[Row]] = defaultdict(list)
    for row in machine.of("connect_failed"):
        if row.peer and row.name in ("connect", "modify_qp"):
            refused[row.peer].append(row)
    odd = _odd(offers)
    hit = {host for host, row in offers.items() if row.peer in refused}
    chosen = sorted(odd & hit) or sorted(hit & _local(offers)) or (sorted(hit) if len(hit) == 1 else [])
    if len(chosen) == 1:
        return [_suspicion(machine, chosen[0], offers, refused, certain=chosen[0] in odd | _local(offers))]
    if not chosen and len(odd) == 1 and refused:
        return [_suspicion(machine, next(iter(odd)), offers, refused, certain=False)]
    return _same_gpu(machine) or _skewed(machine) or _other_network(machine) or _store(machine)


def _same_gpu(machine: Machine) -> list[Suspicion]:
    """Ranks that were given one GPU, as NCCL says."""
    rows = [r for r in machine.of("nccl_error") if r.name == "duplicate_gpu" and r.comm_rank is not None and r.value]
    ranks = tuple(sorted({r for row in rows for r in (row.comm_rank or 0, int(row.value or 0))}))
    if not rows or len(ranks) > _MOST_ON_ONE:
        return []
    text = f"ranks {some([str(r) for r in ranks])} were given one GPU, {rows[0].device}"
    refs = tuple(row.ref(text, "nccl_log") for row in rows[:4])
    hosts = tuple(sorted({h for row in rows if (h := machine.host_of(row))}))
    claim = Claim("nccl_log", "same_gpu", ranks, "strong", text, refs, rows[0].ts, hosts, (rows[0].device,))
    waiting = tuple(sorted(set(machine.hosts) - set(ranks)))
    return [Suspicion("", ranks, (claim,), hosts=hosts, devices=(rows[0].device,), waiting=waiting, since=rows[0].ts)]


def _other_network(machine: Machine) -> list[Suspicion]:
    """The hosts that found no network device and took sockets where most others took a fast network."""
    chosen: dict[str, Row] = {}
    for row in machine.of("identity"):
        host = machine.host_of(row)
        if row.name == "network" and host and row.detail:
            chosen.setdefault(host, row)
    kinds = Counter(row.detail for row in chosen.values()).most_common()
    if len(kinds) < 2 or kinds[0][1] <= kinds[1][1] or kinds[0][0] == "Socket":
        return []
    hosts = tuple(sorted(h for h, row in chosen.items() if row.detail == "Socket"))
    if not hosts or 2 * len(hosts) >= len(chosen):
        return []
    ranks = tuple(sorted({r for host in hosts for r in machine.ranks_on(host)} | _writers(machine, hosts)))
    text = f"{some(hosts)} uses NET/Socket, the {kinds[0][1]} other hosts {kinds[0][0]}: it found no such device"
    refs = tuple(chosen[host].ref(text, "nccl_log") for host in hosts[:4])
    claim = Claim("nccl_log", "wrong_interface", ranks, "strong", text, refs, None, hosts)
    waiting = tuple(sorted(set(machine.hosts) - set(ranks)))
    return [Suspicion("", ranks, (claim,), hosts=hosts, waiting=waiting)]


def _skewed(machine: Machine) -> list[Suspicion]:
    """The hosts with another version of NCCL than most, where NCCL itself says that versions differ."""
    said = [row for row in machine.of("nccl_error") if row.name == "version_mismatch"]
    told = bool(said)
    # Another version's message of the start-up has another size.
    said = said or [row for row in machine.of("nccl_error") if row.detail.startswith("Message truncated")]
    versions: dict[str, Row] = {}
    for row in machine.of("nccl_version"):
        if row.host:
            versions.setdefault(row.host, row)
    counts = Counter(row.name for row in versions.values()).most_common()
    if not said or len(counts) < 2 or counts[0][1] == counts[1][1]:
        return []
    hosts = tuple(sorted(host for host, row in versions.items() if row.name != counts[0][0]))
    ranks = tuple(sorted({r for host in hosts for r in machine.ranks_on(host)} | _writers(machine, hosts)))
    text = f"{some(hosts)} runs NCCL {versions[hosts[0]].name}, {counts[0][1]} other hosts {counts[0][0]}"
    refs = (versions[hosts[0]].ref(text, "nccl_log"), *(row.ref(row.text[:120], "nccl_log") for row in said[:2]))
    claim = Claim("nccl_log", "other_version", ranks, "strong", text, refs, None, hosts)
    waiting = tuple(sorted(set(machine.hosts) - set(ranks)))
    doubts = () if told else (("medium", "NCCL says that a message had another size, not that versions differ"),)
    return [Suspicion("", ranks, (claim,), hosts=hosts, waiting=waiting, doubts=doubts)]


def _writers(machine: Machine, hosts: Sequence[str]) -> set[int]:
    return {r.rank for rows in machine.rows.values() for r in rows if r.host in hosts and r.rank is not None}


def _store(machine: Machine) -> list[Suspicion]:
    """The host of the store, where all who speak of it cannot reach it and it says nothing itself."""
    failed = [row for row in machine.of("connect_failed") if row.name == "store" and row.peer]
    targets = {match[1] for row in failed if (match := _STORE.match(row.peer))}
    reporters = {row.rank if row.rank is not None else row.host for row in failed} - {None}
    if len(targets) != 1 or len(reporters) < _LEAST_REPORTERS:
        return []
    target = next(iter(targets))
    nameless = {
        row.rank if row.rank is not None else row.host for row in machine.of("connect_failed") if row.name == "resolve"
    }
    if reporters <= nameless:
        return _unresolved(machine, target, reporters)
    host = machine.host_at(target) or target
    if any(row.host == host for row in failed):
        return []
    ranks = machine.ranks_on(host)
    text = f"{len(reporters)} ranks or hosts cannot reach the store on {host} ({failed[0].peer})"
    refs = tuple(row.ref(text, "torch_log") for row in failed[:4])
    since = min((row.ts for row in failed if row.ts is not None), default=None)
    claim = Claim("torch_log", "unreachable", ranks, "strong", text, refs, since, (host,))
    doubts = (("medium", f"nothing of {host} itself says whether its process is there"),)
    reporting = tuple(sorted(r for r in reporters if isinstance(r, int)))
    return [Suspicion("", ranks, (claim,), hosts=(host,), waiting=reporting, since=since, doubts=doubts)]


def _unresolved(machine: Machine, target: str, reporters: Collection[object]) -> list[Suspicion]:
    """Those that cannot find the address of the store's host by its name, where others have found it and waited."""
    waiting = {row.rank for row in machine.of("join_timeout") if row.rank is not None} - set(reporters)
    ranks = tuple(sorted(r for r in reporters if isinstance(r, int)))
    hosts = tuple(
        sorted({h for r in ranks if (h := machine.hosts.get(r))} | {h for h in reporters if isinstance(h, str)})
    )
    if not waiting or {machine.hosts.get(r) for r in waiting} & set(hosts):
        return []
    rows = [row for row in machine.of("connect_failed") if row.name == "resolve"]
    text = f"{some(hosts) or f'{len(ranks)} ranks'} cannot resolve the name {target}: {rows[0].detail or 'not known'}"
    claim = Claim("torch_log", "never_joined", ranks, "strong", text, tuple(r.ref(text, "torch_log") for r in rows[:4]))
    since = min((row.ts for row in rows if row.ts is not None), default=None)
    doubts = (("medium", "whether the name or the resolver of these hosts is wrong is not shown"),)
    return [Suspicion("", ranks, (claim,), hosts=hosts, waiting=tuple(sorted(waiting)), since=since, doubts=doubts)]


def missing_clients(machine: Machine, seen: Collection[int]) -> list[Suspicion]:
    """Return the ranks that never joined the store: those without a line, where just as many have one as joined."""
    for row in machine.of("join_timeout"):
        joined = re.match(r"^(\d{1,7})/(\d{1,7}) clients joined", row.name)
        if joined is None or int(joined[2]) > _MOST_CLIENTS:
            continue
        missing = tuple(sorted(set(range(int(joined[2]))) - set(seen)))
        if len(seen) != int(joined[1]) or not missing:
            continue
        text = f"{joined[1]} of {joined[2]} clients joined ({joined[1]}/{joined[2]}): no line is of rank "
        text += some([str(r) for r in missing], 16)
        claim = Claim("torch_log", "never_joined", missing, "strong", text, (row.ref(text, "torch_log"),), row.ts)
        doubts = (("medium", "that they have no line may be the collection's doing"),)
        waiting = tuple(sorted(set(seen)))
        return [Suspicion("", missing, (claim,), waiting=waiting, since=row.ts, doubts=doubts)]
    return []


def _odd(offers: Mapping[str, Row]) -> set[str]:
    """Return the hosts whose subnet is not that of most others."""
    nets = Counter(subnet(row.peer) for row in offers.values())
    if len(nets) < 2:
        return set()
    (usual, count), *rest = nets.most_common()
    if rest and rest[0][1] == count:
        return set()
    return {host for host, row in offers.items() if subnet(row.peer) != usual}


def _local(offers: Mapping[str, Row]) -> set[str]:
    return {
        host for host, row in offers.items() if _LOCAL_INTERFACE.match(row.device) or _LOCAL_ADDRESS.match(row.peer)
    }


def _suspicion(
    machine: Machine, host: str, offers: Mapping[str, Row], refused: Mapping[str, Sequence[Row]], *, certain: bool
) -> Suspicion:
    offer = offers[host]
    others = {h: row for h, row in offers.items() if h != host}
    nets = Counter(f"{row.device} in {subnet(row.peer)}.0/24" for row in others.values())
    text = f"{host} offers {offer.device} with {offer.peer}"
    if nets:
        text += f"; {some(sorted(others))} use {nets.most_common(1)[0][0]}"
    kind = "wrong_interface" if certain else "unreachable"
    ranks = machine.ranks_on(host) or tuple(
        sorted(
            {row.rank for rows in machine.rows.values() for row in rows if row.host == host and row.rank is not None}
        )
    )
    claims = [Claim("nccl_log", kind, ranks, "strong", text, (offer.ref(text, "nccl_log"),), offer.ts, (host,))]
    rows = list(refused.get(offer.peer, ()))
    if rows:
        who = sorted({str(row.rank) for row in rows if row.rank is not None})
        whom = f"ranks {some(who)}" if who else "others"
        text = f"{whom} cannot reach {offer.peer}: {rows[0].detail or 'no connection'}"
        claims.append(
            Claim(
                "nccl_log",
                "unreachable",
                ranks,
                "strong",
                text,
                tuple(r.ref(text, "nccl_log") for r in rows[:4]),
                rows[0].ts,
                (host,),
            )
        )
    claims += _environment(machine, host)
    other = [
        row for row in machine.of("identity") if row.name == "address" and row.host == host and row.peer != offer.peer
    ]
    usual = {subnet(row.peer) for row in others.values()}
    better = next((row for row in other if subnet(row.peer) in usual), None)
    if better is not None:
        text = f"{host} has {better.device} with {better.peer}, in the subnet of the others"
        claims.append(
            Claim("nccl_log", "right_interface", ranks, "weak", text, (better.ref(text, "nccl_log"),), None, (host,))
        )
    reporters = tuple(sorted({row.rank for row in rows if row.rank is not None} - set(ranks)))
    passed = (("init_timeout", reporters, "they report the address that they cannot reach, which is not theirs"),)
    doubts = (
        ()
        if certain
        else (("medium", "the address looks like those of the other hosts: the process may not be there"),)
    )
    waiting = tuple(sorted(set(machine.hosts) - set(ranks)))
    return Suspicion(
        rule="",
        ranks=ranks,
        claims=tuple(claims),
        hosts=(host,),
        devices=(offer.device,),
        waiting=waiting,
        since=min((row.ts for row in rows if row.ts is not None), default=None),
        doubts=doubts,
        passed_over=passed if reporters else (),
    )


def _environment(machine: Machine, host: str) -> list[Claim]:
    """Say where the environment of a host differs from that of the others."""
    values: dict[str, dict[str, Row]] = defaultdict(dict)
    for row in machine.of("nccl_env"):
        where = machine.host_of(row)
        if where:
            values[row.name].setdefault(where, row)
    found: list[Claim] = []
    for name, by_host in sorted(values.items()):
        mine = by_host.get(host)
        theirs = {row.detail for h, row in by_host.items() if h != host}
        if mine is not None and theirs and mine.detail not in theirs:
            text = f"{name} is {mine.detail} on {host} and {some(sorted(theirs))} on the other hosts"
            found.append(
                Claim("nccl_log", "other_environment", (), "strong", text, (mine.ref(text, "nccl_log"),), None, (host,))
            )
    return found
