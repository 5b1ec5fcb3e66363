"""Network devices as tools print them: ibstat, ibv_devinfo, `rdma link`, and counters to be compared.

Counters mean something only as differences between two readings, so every reading is written: one `nic_counter` event
per counter (`name`, `value`, `device`), `code` the number of the reading within its file. The analysis orders
readings of a device by time, else by file name (`t0`/`t1`, `before`/`after`), and subtracts.

* `tx_prio3_pause` and the like: *we told* others to stop, so we are the congested receiver; `rx_…_pause`: we were told.
* `out_of_sequence`, `np_cnp_sent` grow at the receiver; `packet_seq_err`, `local_ack_timeout_err`,
  `roce_adp_retrans`, `rp_cnp_handled`, `rnr_nak_retry_err` at the sender.
"""

from __future__ import annotations

import re
from typing import Any, Final

from mycroft.loaders.text.matcher import Line, Matcher
from mycroft.loaders.text.reading import Reading, number_of
from mycroft.loaders.text.scope import FileScope

STATE: Final = "nic_state"
COUNTERS: Final = "nic_counters"

_KEY: Final = re.compile(r"^\s*([A-Za-z][\w /()-]{0,60}?)\s*:\s*(.*?)\s*$")
_UP: Final = {"active", "linkup", "port_active", "link_up", "up", "linkuperrorrecovery"}
# Counters that say something of congestion, loss or a bad link; the many others are passed over.
_USEFUL: Final = re.compile(
    r"pause|discard|drop|crc|symbol|err|retr|timeout|out_of_|cnp|ecn|nak|link_down|linkdowned|recover|xmitwait"
    r"|xmit_wait|buffer|"
    r"out_of_sequence|duplicate|overrun|congest|integrity|rcvremote|xmitdiscard",
    re.IGNORECASE,
)
_DATA: Final = re.compile(r"^(?:port_?)?(?:xmit|rcv|tx|rx)_?(?:data|bytes|bytes_phy|packets_phy)$", re.IGNORECASE)


class _Ports(Reading):
    """`ibstat` (CA 'mlx5_3') and `ibv_devinfo` (hca_id: mlx5_3)."""

    def __init__(self, scope: FileScope, line: Line) -> None:
        super().__init__(scope, line)
        self.device: str | None = None
        self.port: int | None = None

    def take(self, scope: FileScope, line: Line) -> bool:
        scope.memory["ib_ports"] = line.number
        text = line.text
        ca = re.match(r"^\s*CA '([\w.-]{1,40})'|^\s*hca_id:\s*([\w.-]{1,40})", text)
        if ca:
            self.device, self.port = ca[1] or ca[2], None
            return True
        port = re.match(r"^\s*[Pp]ort:?\s*(\d{1,3}):?\s*$", text)
        if port:
            self.port = int(port[1])
            return True
        pair = _KEY.match(text)
        if pair is None or self.device is None:
            return False
        key, value = pair[1].strip().lower(), pair[2]
        if key in ("state", "physical state", "phys_state"):
            # "PORT_ACTIVE (4)" of ibv_devinfo.
            word = value.split("(")[0].strip()
            name = "state" if key == "state" else "physical_state"
            good = word.lower() in _UP
            self._say(scope, line, name, detail=word, level="info" if good else "error")
        elif key in ("rate", "active_speed", "active_width"):
            self._say(scope, line, key, value=number_of(value), detail=value[:60], level="info")
        elif key == "link layer" or key == "link_layer":
            self._say(scope, line, "link_layer", detail=value, level="info")
        return True

    def _say(self, scope: FileScope, line: Line, name: str, **columns: Any) -> None:
        self.say(scope, line, "nic_state", name=name, device=self.device, code=self.port, **columns)


def _ports(scope: FileScope, line: Line, match: re.Match[str]) -> None:
    if scope.memory.get("ib_ports") != line.number:
        reading = _Ports(scope, line)
        scope.open(line, reading)
        reading.take(scope, line)


def _rdma_link(scope: FileScope, line: Line, match: re.Match[str]) -> None:
    good = match["state"].upper() == "ACTIVE" and match["phys"].upper() in ("LINK_UP", "LINKUP")
    for name, value in (("state", match["state"]), ("physical_state", match["phys"])):
        row = scope.event(
            line,
            match.start(),
            "nic_state",
            name=name,
            device=match["dev"],
            code=int(match["port"]),
            detail=value,
            peer=match["netdev"],
            level="info" if good else "error",
        )
        row["_foreign"] = True


class _Counters(Reading):
    """Lines of `name: value` or `name value` after a command or a header that says of which device."""

    def __init__(self, scope: FileScope, line: Line, device: str | None) -> None:
        super().__init__(scope, line)
        self.device = device
        scope.memory["counter_device"] = device or scope.memory.get("counter_device")
        key = ("counter_reading", self.device)
        self.reading = int(scope.memory.get(str(key), -1)) + 1
        scope.memory[str(key)] = self.reading

    def take(self, scope: FileScope, line: Line) -> bool:
        scope.memory["counters"] = line.number
        found = re.match(
            r"^\s*(?:([\w.-]{1,40})/)?([A-Za-z][\w\[\]-]{2,60})(?:\s*[:=]\s*|\s+|:?\.{2,60})(\d{1,20})\s*$", line.text
        )
        if found is None:
            return False
        name = found[2]
        if _USEFUL.search(name) or _DATA.match(name):
            self.say(
                scope,
                line,
                "nic_counter",
                name=name,
                value=float(found[3]),
                device=found[1] or self.device or scope.memory.get("counter_device"),
                code=self.reading,
                level="info",
            )
        else:
            scope.claim(line)
        return True


def _counters(scope: FileScope, line: Line, match: re.Match[str]) -> None:
    groups = match.groupdict()
    device = groups.get("dev")
    if groups.get("port"):
        device = f"lid {groups.get('lid')} port {groups['port']}"
    scope.open(line, _Counters(scope, line, device))


def _bare_counter(scope: FileScope, line: Line, match: re.Match[str]) -> None:
    """Open at the first counter where neither command nor header was pasted."""
    if scope.memory.get("counters") != line.number:
        reading = _Counters(scope, line, None)
        scope.open(line, reading)
        reading.take(scope, line)


MATCHERS: Final[tuple[Matcher, ...]] = (
    Matcher(
        "ib_ports",
        STATE,
        ("CA '", "hca_id:"),
        re.compile(r"^\s*(?:CA '[\w.-]{1,40}'|hca_id:\s*[\w.-]{1,40})"),
        _ports,
        80,
    ),
    Matcher(
        "rdma_link",
        STATE,
        ("physical_state ",),
        re.compile(
            r"link (?P<dev>[\w.-]{1,40})/(?P<port>\d{1,3}) (?:subnet_prefix \S{1,40} lid \d+ sm_lid \d+ lmc \d+ )?"
            r"state (?P<state>\w{1,20}) physical_state (?P<phys>\w{1,20})(?: netdev (?P<netdev>[\w.-]{1,40}))?"
        ),
        _rdma_link,
    ),
    Matcher(
        "ethtool",
        COUNTERS,
        ("ethtool ", "NIC statistics"),
        re.compile(
            r"ethtool (?:-S|--statistics|--phy-statistics) (?P<dev>[\w.@-]{1,40})"
            r"|^\s*NIC statistics(?: for [\w.-]{1,40})?:"
        ),
        _counters,
        1_500,
    ),
    Matcher(
        "hw_counters",
        COUNTERS,
        ("hw_counters", "/counters/"),
        re.compile(r"(?:/sys/class/infiniband/(?P<dev>[\w.-]{1,40})/ports/\d{1,3}/)?(?:hw_counters|/counters/)"),
        _counters,
        200,
    ),
    Matcher(
        "perfquery",
        COUNTERS,
        ("Port counters:", "Port extended counters:"),
        re.compile(r"# Port (?:extended )?counters: Lid (?P<lid>\d{1,6}) port (?P<port>\d{1,3})"),
        _counters,
        200,
    ),
    Matcher(
        "bare_counter",
        COUNTERS,
        (
            "rx_prio",
            "tx_prio",
            "out_of_sequence",
            "packet_seq_err",
            "np_cnp_sent",
            "SymbolErrorCounter",
            "symbol_error",
            "PortXmitWait",
            "rx_discards_phy",
            "rx_crc_errors_phy",
        ),
        re.compile(r"^\s*(?:[\w.-]{1,40}/)?[A-Za-z]\w{2,60}(?:\s*[:=]\s*|\s+|:?\.{2,60})\d{1,20}\s*$"),
        _bare_counter,
        200,
    ),
)
