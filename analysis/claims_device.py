"""Xid and other words of a GPU about itself, weighed: cause, consequence, background, or another process.

A fatal Xid in time takes its GPU's rank away whatever else that rank printed. Xid 43 and 45 follow a fault or come
from the program; one hours before the trouble is background; one of a process that is not the rank's is another's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from mycroft.analysis.claims import Claim, Suspicion
from mycroft.analysis.machine import Machine, Row

MINUTE_NS: Final = 60_000_000_000
# How long before the first symptom a fault still counts as its cause; a GPU can fail and be noticed at the next step.
BEFORE_NS: Final = 60 * MINUTE_NS
# Kernel and job clocks differ by this much without meaning anything.
AFTER_NS: Final = 5 * MINUTE_NS
_QUARTER_NS: Final = 15 * MINUTE_NS


# What a device, or the switch between devices, says of itself.
_OWN_WORDS: Final = ("fatal", "fault", "remedy", "switch")


def verdict_of(row: Row, machine: Machine, around: int | None) -> tuple[str, str]:
    """Return what one Xid is to the trouble: `cause`, `consequence`, `background` or `other`, and why."""
    if row.pid is not None and row.rank is not None and machine.pids.get(row.rank) not in (None, row.pid):
        mine = machine.pids[row.rank]
        return "other", f"it is of process {row.pid}, and rank {row.rank} is process {mine}"
    if row.name == "consequence":
        return "consequence", "this number follows another fault or comes from the program itself"
    if row.name == "remedy":
        return "remedy", "it says what the driver asks for"
    if row.name == "switch" and row.level == "warning":
        return "background", "the switch itself calls it not fatal"
    if row.ts is None or around is None:
        return "cause", "its time is not known"
    if _has_own_error(row, machine):
        return "cause", "its rank reports an error of the device at the same time"
    early = around - row.ts
    if row.quality != "exact" and abs(early) > BEFORE_NS:
        # A clock without its zone is off by whole quarters of an hour.
        early = (early + _QUARTER_NS // 2) % _QUARTER_NS - _QUARTER_NS // 2
        if abs(early) <= AFTER_NS and abs(around - row.ts) <= 15 * 60 * MINUTE_NS:
            return "cause", "its time fits but for the zone of the clock"
        early = around - row.ts
    if early > BEFORE_NS:
        return "background", f"it is {_age(early)} older than the first symptom"
    if early < -AFTER_NS:
        return "consequence", f"it comes {_age(-early)} after the first symptom"
    return "cause", f"it is {_age(abs(early))} {'before' if early >= 0 else 'after'} the first symptom"


def _has_own_error(row: Row, machine: Machine) -> bool:
    """Say whether the rank of a GPU reports an error of its device within minutes of it."""
    if row.rank is None or row.ts is None:
        return False
    own = [r.ts for r in machine.of("cuda_error") if r.rank == row.rank and r.ts is not None]
    return any(abs(ts - row.ts) <= AFTER_NS for ts in own)


def _age(ns: int) -> str:
    seconds = ns / 1e9
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


def suspicions(machine: Machine, around: int | None) -> list[Suspicion]:
    """Return the GPUs that failed, the earliest first; several GPUs at once are one suspicion each."""
    rows = machine.of("xid")
    causes = [(row, why) for row in rows if (v := verdict_of(row, machine, around))[0] == "cause" for why in [v[1]]]
    if not causes:
        return []
    first = min((row.ts for row, _why in causes if row.ts is not None), default=None)
    found: list[Suspicion] = []
    seen: set[tuple[str | None, str]] = set()
    for row, why in causes:
        place = (row.host, row.device)
        late = first is not None and row.ts is not None and row.ts - first > MINUTE_NS
        if place in seen or late:
            continue
        seen.add(place)
        found.append(_suspicion(machine, row, why, rows, around))
    return found if len(found) <= 8 else []


def _suspicion(machine: Machine, row: Row, why: str, rows: Sequence[Row], around: int | None) -> Suspicion:
    where = f"{row.device or 'a GPU'} of {row.host or _host_of_file(machine, row)}"
    same = [r for r in rows if r.host == row.host and r.device == row.device and r.name in _OWN_WORDS]
    claims: list[Claim] = []
    guess = user_by_error(machine, row) if row.rank is None else None
    rank = row.rank if row.rank is not None else guess
    ranks = (rank,) if rank is not None else ()
    hosts = (row.host,) if row.host else ()
    devices = (row.device,) if row.device else ()
    for other in same:
        text = f"{'SXid' if other.name == 'switch' else 'Xid'} {other.code} of {where}: {other.detail}"
        if other.name == "remedy" or (other.name == "switch" and other.level == "warning"):
            continue
        if text not in {c.text for c in claims}:
            claims.append(
                Claim(
                    "kernel_log",
                    "gpu_fault",
                    ranks,
                    "proof",
                    text,
                    (other.ref(text, "kernel_log"),),
                    other.ts,
                    hosts,
                    devices,
                    detail=text,
                )
            )
    for other in same:
        if other.name == "remedy":
            text = f"Xid {other.code} of {where}: the driver asks for more than a restart of the process"
            claims.append(
                Claim(
                    "kernel_log",
                    "gpu_remedy",
                    ranks,
                    "weak",
                    text,
                    (other.ref(text, "kernel_log"),),
                    other.ts,
                    hosts,
                    devices,
                )
            )
    passed: list[tuple[str, tuple[int, ...], str]] = []
    for other in rows:
        kind, reason = verdict_of(other, machine, around)
        if kind in ("background", "other", "consequence") and (other.host, other.device) != (row.host, row.device):
            about = (other.rank,) if other.rank is not None else ()
            passed.append(("gpu_fault", about, f"Xid {other.code} of {other.device} on {other.host}: {reason}"))
    doubts: list[tuple[str, str]] = []
    if row.ts is None:
        doubts.append(("medium", "the kernel log gives no time for it"))
    if "zone" in why:
        doubts.append(("medium", why))
    if row.code is not None and (row.code == 74 or 144 <= row.code <= 150):
        doubts.append(("medium", "an NVLink error may come from the GPU at the other end of the link"))
    if guess is not None:
        words = f"told by its own CUDA error and the address of its GPU: no line ties rank {guess} to {row.host}"
        doubts.append(("medium", words))
    elif row.name == "switch":
        doubts.append(("medium", "a switch serves all GPUs of its host: no rank of it stands out"))
    elif row.rank is None:
        doubts.append(("medium", "no line says which rank uses this GPU"))
    return Suspicion(
        rule="",
        ranks=ranks,
        claims=tuple(claims),
        hosts=hosts,
        devices=devices,
        waiting=tuple(r for r in sorted(machine.hosts) if r not in ranks),
        since=row.ts,
        doubts=tuple(doubts),
        passed_over=tuple(dict.fromkeys(passed)),
    )


def _host_of_file(machine: Machine, row: Row) -> str:
    """Return in words the host of a kernel log that names none."""
    path = machine.files.get(row.file) if row.file is not None else None
    return f"the host of {path}" if path else "an unnamed host"


def tied(machine: Machine, found: Sequence[Suspicion]) -> list[Suspicion]:
    """Return the suspicions after a GPU of which no line says whose it is was held against those of ranks.

    Where the only accused rank with a GPU at that address has no other known host, the GPU is taken for its own: that
    explains both. Else the GPU may be of a machine outside of the job, and what accuses ranks comes first.
    """
    result = list(found)
    for item in found:
        if item.rule != "gpu_fault" or item.ranks or not _may_be_foreign(machine, item):
            continue
        others = [o for o in result if o is not item and o.ranks and not o.one_of]
        if not others:
            continue
        users = {r for o in others for r in o.ranks if machine.gpus.get(r) in item.devices}
        result.remove(item)
        if len(users) == 1 and all(set(o.ranks) <= users for o in others) and _may_be(machine, users, item.hosts):
            rank = users.pop()
            words = f"told by the address of its GPU: no line ties rank {rank} to {' '.join(item.hosts) or 'that host'}"
            claims = tuple(replace(c, ranks=(rank,)) if c.kind == "gpu_fault" else c for c in item.claims)
            waiting = tuple(r for r in item.waiting if r != rank)
            more = tuple(c for o in others for c in o.claims)
            place = others[0]
            result = [
                replace(
                    item,
                    ranks=(rank,),
                    claims=(*claims, *more),
                    waiting=waiting,
                    comm=place.comm,
                    seq=place.seq,
                    op=place.op,
                    missing=place.missing,
                    sinks=place.sinks,
                    doubts=(*item.doubts, ("medium", words)),
                ),
                *(o for o in result if o not in others),
            ]
        else:
            words = "nothing ties this GPU to a rank of the job, and something else explains what the job shows"
            result.append(replace(item, waiting=(), doubts=(*item.doubts, ("low", words))))
    return result


def _may_be_foreign(machine: Machine, item: Suspicion) -> bool:
    """Say whether a GPU may be none of the job's: no rank is known on its host, or each there uses another one."""
    there = {r for host in item.hosts for r in machine.ranks_on(host)}
    if not there:
        return True
    known = all(r in machine.gpus for r in there) and not any("NVSwitch" in c.text for c in item.claims)
    return known and not any(machine.gpus[r] in item.devices for r in there)


def _may_be(machine: Machine, ranks: set[int], hosts: Sequence[str]) -> bool:
    """Say whether these ranks may run on a host that the job's own lines do not name: a node under its pods."""
    names = {machine.hosts[r] for r in ranks if r in machine.hosts}
    return not names or not hosts or not any(machine.nodes.get(name) for name in names)


def user_by_error(machine: Machine, row: Row) -> int | None:
    """Return the one rank that has a GPU at this address, a CUDA error of its own, and a host nobody else has named.

    A container knows its pod, the kernel its node: without a table of pods nothing else joins them.
    """
    if row.host is not None and machine.ranks_on(row.host):
        return None
    failed = {r.rank for r in machine.of("cuda_error", "exception") if "CUDA error" in f"{r.name} {r.detail} {r.text}"}
    found = [rank for rank, gpu in machine.gpus.items() if gpu == row.device and rank in failed]
    return found[0] if len(found) == 1 else None


def claims(machine: Machine, around: int | None) -> list[Claim]:
    """Return the claims about ranks alone, for suspicions that other rules make."""
    return [claim for s in suspicions(machine, around) for claim in s.claims if claim.ranks]
