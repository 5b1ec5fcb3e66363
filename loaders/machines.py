"""Hosts under their several names, the pods on them and the GPUs in them.

A host is known by its name, by its name with a domain, by an address, and as the node below a pod; a GPU by its
address on the bus, by an index and by a uuid. `Machines` knows one host by one name and finds which rank uses a device.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from mycroft.loaders.comm_ranks import CommRanks

_IPV4: Final = re.compile(r"\d{1,3}(?:\.\d{1,3}){3}")

Row = dict[str, Any]
Process = tuple[str, int]


@dataclass(frozen=True, slots=True)
class Device:
    """A GPU of a host as a tool numbers it."""

    host: str
    index: int
    bus: str


class Machines:
    """Hosts under their several names, and the devices in them."""

    def __init__(self, hosts: Sequence[str], facts: Sequence[Row]) -> None:
        self._hosts = hosts
        self._same: dict[str, str] = {}
        self.node_of_pod: dict[str, str] = {}
        self._uuids: dict[tuple[str, str], str] = {}
        self._indices: dict[tuple[str, str], str] = {}
        self._join_domains()
        self._join_addresses(facts)
        self._find_pods(facts)
        self._find_devices(facts)

    def one(self, name: str) -> str:
        """Return the one name that stands for a host."""
        seen = name
        while (other := self._same.get(seen)) is not None and other != seen:
            seen = other
        return seen

    def name(self, host_id: int | None) -> str | None:
        """Return the name of a provisional id."""
        return self._hosts[host_id] if host_id is not None else None

    def of(self, host_id: int | None) -> str:
        """Return the one name of a provisional id, empty where there is none."""
        return self.one(self._hosts[host_id]) if host_id is not None else ""

    def uuid(self, host_id: int | None, bus: str | None) -> str | None:
        """Return the uuid of a GPU that a tool printed beside its address."""
        return self._uuids.get((self.of(host_id), bus)) if bus else None

    def uuid_at(self, device: Device) -> str | None:
        """Return the uuid of a GPU."""
        return self._uuids.get((device.host, device.bus))

    def gpus(self) -> dict[str, list[Device]]:
        """Return the GPUs of each host that a tool has numbered, in order."""
        found: dict[str, list[Device]] = defaultdict(list)
        for (host, index), bus in sorted(self._indices.items(), key=lambda item: (item[0][0], int(item[0][1][4:]))):
            found[host].append(Device(host, int(index[4:]), bus))
        return found

    def _join_domains(self) -> None:
        """`gpu-7.cluster.local` is `gpu-7`, unless two domains have one."""
        short: dict[str, set[str]] = defaultdict(set)
        for name in self._hosts:
            if not _IPV4.fullmatch(name):
                short[name.partition(".")[0].lower()].add(name)
        for head, names in short.items():
            domains = {n.partition(".")[2].lower() for n in names if "." in n}
            if len(names) > 1 and len(domains) <= 1:
                first = min(names, key=lambda n: (len(n), n))
                self._same.update({n: first for n in names if n != first})
            del head

    def _join_addresses(self, facts: Sequence[Row]) -> None:
        """A host that is named by an address is the host whose bootstrap line gives that address."""
        owners: dict[str, set[str]] = defaultdict(set)
        for row in facts:
            if row["kind"] == "identity" and row["name"] == "address" and row["peer"] and row["host_id"] is not None:
                owners[row["peer"]].add(self.of(row["host_id"]))
        for name in self._hosts:
            found = owners.get(name, set()) - {name}
            if _IPV4.fullmatch(name) and len(found) == 1:
                self._same[name] = found.pop()

    def _find_pods(self, facts: Sequence[Row]) -> None:
        nodes: dict[str, set[str]] = defaultdict(set)
        for row in facts:
            if row["kind"] == "pod_state" and row["name"] and row["host_id"] is not None:
                nodes[row["name"]].add(self.of(row["host_id"]))
        self.node_of_pod = {pod: found.pop() for pod, found in nodes.items() if len(found) == 1 and pod not in found}

    def _find_devices(self, facts: Sequence[Row]) -> None:
        for row in facts:
            if row["kind"] != "identity" or not row["device"]:
                continue
            place = (self.of(row["host_id"]), row["device"])
            if row["name"] == "uuid" and row["detail"]:
                self._uuids[place] = row["detail"]
            elif row["name"] == "index" and row["code"] is not None:
                self._indices[place[0], f"GPU {row['code']}"] = row["device"]

    def devices(
        self, members: CommRanks, facts: Sequence[Row], by_order: Sequence[tuple[int, Device]]
    ) -> Iterable[tuple[str, str, int]]:
        """Return (host, device, rank) for every device that a rank of the job was seen to use."""
        pairs = {(d.host, name, rank) for rank, d in by_order for name in (d.bus, f"GPU {d.index}")}
        for row in facts:
            if row["kind"] not in ("comm_init", "ras_member") or row["pid"] is None or not row["device"]:
                continue
            host = self.of(row["host_id"])
            rank = members.rank_of((host, row["pid"]))
            if rank is None:
                continue
            places = [host, *([self.one(self.node_of_pod[host])] if host in self.node_of_pod else [])]
            for place in places:
                pairs.add((place, row["device"], rank))
                if row["kind"] == "comm_init" and row["code"] is not None and row["code"] >= 0:
                    pairs.add((place, f"GPU {row['code']}", rank))
        for (host, index), bus in self._indices.items():
            pairs |= {(h, bus, r) for h, d, r in list(pairs) if d == index and h == host}
        # One more way to name a device: its uuid.
        pairs |= {
            (h, u, r) for (host, bus), u in self._uuids.items() for h, d, r in list(pairs) if (h, d) == (host, bus)
        }
        return sorted(pairs)


def gpus_in_order(
    machines: Machines,
    solved: Mapping[Process, int],
    facts: Sequence[Row],
    ranks: Mapping[int, Mapping[str, int | str]],
) -> list[tuple[int, Device]]:
    """Give the ranks of a host its GPUs in order, where there are as many of one as of the other and nobody says more.

    Launchers start one process per GPU in this order. A host where NCCL named a device is left alone.
    """
    named = {machines.of(row["host_id"]) for row in facts if row["kind"] == "comm_init" and row["device"]}
    at: dict[str, set[int]] = defaultdict(set)
    for rank, said in ranks.items():
        if isinstance(host := said.get("host"), str):
            at[machines.one(host)].add(rank)
    for (host, _pid), rank in solved.items():
        at[host].add(rank)
    pairs: list[tuple[int, Device]] = []
    for host, gpus in machines.gpus().items():
        here = sorted(at.get(host, ()))
        if host not in named and len(here) == len(gpus) and here[-1] - here[0] == len(here) - 1:
            pairs += zip(here, gpus, strict=True)
    return pairs
