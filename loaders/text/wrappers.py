"""What stands in front of a line: launchers, collectors, containers and frameworks put their prefixes there.

`Peeler.peel` takes prefixes off, in whatever order they are stacked, and keeps what each one says in `Facts`. Forms
that could as well be the program's own text (`3: `, `node-1: `, `[2] `, `pod container `) are taken off only in files
where most lines of the beginning have them: see `Profile`. Containers that hold a line as a value (JSON records,
CRI) and escape sequences have been undone before, by `_core.LineScanner`; what they said comes here as `meta`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final, cast

import msgspec

from mycroft.loaders.text.clock import ISO, MONTHS, US, Moment, Years, first_moment, moment_of

_MAX_PREFIXES: Final = 12
# So many of a file's first lines decide which ambiguous prefixes it has.
_PROFILE_LINES: Final = 100


@dataclass(slots=True)
class Facts:
    """What the prefixes of one line say. `rank` is global; `task` and `index` are counters whose meaning is open."""

    rank: int | None = None
    local_rank: int | None = None
    task: int | None = None
    index: int | None = None
    host: str | None = None
    pid: int | None = None
    pod: str | None = None
    service: str | None = None
    address: str | None = None
    role: str | None = None
    job: str | None = None
    tp: int | None = None
    pp: int | None = None
    dp: int | None = None
    stream: str | None = None
    program: str | None = None
    repeated: int = 0
    moment: Moment | None = None

    def key(self, *, with_rank: bool = True, with_role: bool = True) -> tuple[object, ...]:
        """Return what tells one writer from another: lines of one traceback share it."""
        return (
            self.rank if with_rank else None,
            self.local_rank,
            self.task,
            self.index,
            self.host,
            self.pid,
            self.pod,
            self.service,
            self.job,
            self.tp if with_role else None,
            self.pp if with_role else None,
            self.dp if with_role else None,
            self.role,
        )


@dataclass(frozen=True, slots=True)
class Profile:
    """The ambiguous prefixes that a file has, found by `profile_of`: by name, how often each stands on one line."""

    counts: dict[str, int] = field(default_factory=lambda: dict[str, int]())


@dataclass(frozen=True, slots=True)
class Wrapper:
    """One prefix: `pattern` is matched at the start of what is left, `take` moves its groups into the facts.

    `take` returns False when the match is no prefix after all. `share` is the part of a file's first lines that must
    have an ambiguous prefix; None: the form is unmistakable.
    """

    name: str
    first: str
    pattern: re.Pattern[str]
    take: Callable[[Facts, re.Match[str]], bool]
    share: float | None = None


_LEVELS: Final = frozenset(
    ("debug", "info", "warning", "warn", "error", "critical", "fatal", "trace", "notice", "exception")
)
_NO_HOST: Final = re.compile(
    r"(?:.*(?:Error|Exception|Warning|Interrupt|Exit|Failure)|\d+|epoch\d*|step\d*|iter\d*|srun|slurmstepd|mpirun|"
    r"rank\d*|"
    # Words joined by underscores name a function.
    r"https?|[A-Z]+\d*|[a-z]+(?:_[a-z]+)+)$"
)


def _take_rank(facts: Facts, match: re.Match[str]) -> bool:
    facts.rank = int(match["rank"])
    return True


def _take_local(facts: Facts, match: re.Match[str]) -> bool:
    facts.local_rank = int(match["lr"])
    facts.role = match["role"]
    return True


def _take_openmpi(facts: Facts, match: re.Match[str]) -> bool:
    facts.rank = int(match["rank"])
    if match["host"]:
        facts.host = match["host"]
        facts.pid = int(match["pid"])
    facts.stream = match["stream"]
    return True


def _take_index(facts: Facts, match: re.Match[str]) -> bool:
    facts.index = int(match["n"])
    return True


def _take_job(facts: Facts, match: re.Match[str]) -> bool:
    facts.job = match["job"]
    return True


def _take_time(facts: Facts, match: re.Match[str]) -> bool:
    moment = moment_of(match)
    if moment is None:
        return False
    _keep_moment(facts, moment)
    return True


# How sure a time is, the surest first.
_BETTER: Final = {"exact": 0, "zone_assumed": 1, "year_assumed": 2, "order_only": 3}


def _keep_moment(facts: Facts, moment: Moment) -> None:
    # The outermost exact time is the collector's. Where something is assumed of it, a stamp further in, of whoever said
    # the line, is nearer to when that happened, unless it is worse: a log passed on later has the later time outside.
    known = facts.moment
    if known is None or (known.quality != "exact" and _BETTER[moment.quality] <= _BETTER[known.quality]):
        facts.moment = moment


def _take_sglang(facts: Facts, match: re.Match[str]) -> bool:
    moment = moment_of(match)
    if moment is not None:
        _keep_moment(facts, moment)
    for name in ("dp", "pp", "tp"):
        if match[name]:
            setattr(facts, name, int(match[name]))
    return True


def _take_ray(facts: Facts, match: re.Match[str]) -> bool:
    facts.pid = int(match["pid"])
    facts.address = match["ip"] or facts.address
    facts.role = match["actor"]
    for name in ("dp", "pp", "tp"):
        number = re.search(rf"_{name.upper()}(\d+)", match["actor"])
        if number:
            setattr(facts, name, int(number[1]))
    if match["rank"]:
        facts.rank = int(match["rank"])
    return True


def _take_task(facts: Facts, match: re.Match[str]) -> bool:
    facts.task = int(match["task"])
    return True


def _take_host(facts: Facts, match: re.Match[str]) -> bool:
    if _NO_HOST.match(match["host"]) or match["host"].lower().rstrip(":") in _LEVELS:
        return False
    facts.host = match["host"]
    return True


def _take_job_stream(facts: Facts, match: re.Match[str]) -> bool:
    facts.job = match["job"]
    facts.host = match["host"]
    facts.stream = match["stream"]
    return True


def _take_pod(facts: Facts, match: re.Match[str]) -> bool:
    if match["pod"].lower().rstrip(":") in _LEVELS:
        return False
    facts.pod = match["pod"]
    return True


def _take_service(facts: Facts, match: re.Match[str]) -> bool:
    facts.service = match["svc"]
    return True


def _take_syslog(facts: Facts, match: re.Match[str]) -> bool:
    if match["host"].lower().rstrip(":") in _LEVELS:
        return False
    facts.host = match["host"]
    # The process that wrote to the log is often not the one that speaks: a launcher passes on what its ranks print.
    facts.program = match["program"]
    return True


def _take_iso_syslog(facts: Facts, match: re.Match[str]) -> bool:
    # Without a time in front this would be any two words.
    return facts.moment is not None and _take_syslog(facts, match)


def _take_stream(facts: Facts, match: re.Match[str]) -> bool:
    # What is left of CRI behind a prefix, once its time has been taken.
    facts.stream = match["stream"]
    return facts.moment is not None


def _take_nothing(facts: Facts, match: re.Match[str]) -> bool:
    return True


_UNIX_STAMP: Final = (
    r"(?P<mname>Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec) {1,2}(?P<mday>\d{1,2}) "
    r"(?P<hms>\d\d:\d\d:\d\d)(?P<sub>\.\d+)? "
)
_PROGRAM: Final = r"(?P<program>kernel|[\w./@:-]+(?=\[\d+\]:))(?:\[(?P<pid>\d+)\])?: ?"

WRAPPERS: Final[tuple[Wrapper, ...]] = (
    Wrapper("residue", "[", re.compile(r"\[(?:\d{1,3}(?:;\d{1,3}){0,5}m|m(?=[\[(\s\w{]|$))"), _take_nothing),
    Wrapper(
        "escaped",
        "\\^#",
        re.compile(r"(?:\\u001b|\\x1b|\\033|\\e|\^\[|#033)\[[0-9;?]*[A-Za-z]", re.IGNORECASE),
        _take_nothing,
    ),
    # A quotation in a mail or an issue.
    Wrapper("quote", ">", re.compile(r"(?:> ?){1,4}"), _take_nothing, 0.6),
    Wrapper("rank", "[", re.compile(r"\[rank(?P<rank>\d{1,7})\]: ?"), _take_rank),
    Wrapper("tee", "[", re.compile(r"\[(?P<role>(?!rank\d)[A-Za-z_]{1,40})(?P<lr>\d{1,5})\]: ?"), _take_local),
    Wrapper(
        "openmpi",
        "[",
        re.compile(
            r"\[(?:[\w.-]+@)?\d+,(?P<rank>\d{1,7})\](?:\[(?P<host>[\w.-]+):(?P<pid>\d{1,10})\])?"
            r"<(?P<stream>stdout|stderr|stddiag)>:? ?"
        ),
        _take_openmpi,
    ),
    Wrapper(
        "sglang",
        "[",
        re.compile(r"\[" + ISO.pattern + r"(?: DP(?P<dp>\d+))?(?: PP(?P<pp>\d+))?(?: TP(?P<tp>\d+))?(?: EP\d+)?\] ?"),
        _take_sglang,
    ),
    Wrapper("job", "[", re.compile(r"\[(?P<job>(?:job|run|exp|trial|task)[\w.-]{0,40})\]:? ?"), _take_job),
    Wrapper("kubectl", "[", re.compile(r"\[pod/(?P<pod>[\w.-]+)/[\w.-]+\] ?"), _take_pod),
    Wrapper("index", "[", re.compile(r"\[(?P<n>\d{1,6})\] "), _take_index, 0.5),
    Wrapper(
        "pod-brackets", "[", re.compile(r"\[(?P<pod>[a-z0-9][\w.]{0,250}-[\w.-]{0,250})\](?: ?\| ?| )"), _take_pod, 0.6
    ),
    Wrapper(
        "ray",
        "(",
        re.compile(
            r"\((?P<actor>[\w.:-]{1,80})(?:(?:\[| )rank=(?P<rank>\d+)\]?)?(?: [A-Z]{2}\d+)* pid=(?P<pid>\d{1,10})"
            r"(?:, ip=(?P<ip>[\d.a-fA-F:]+))?\) ?"
        ),
        _take_ray,
    ),
    Wrapper("stamp", "0123456789", re.compile(ISO.pattern + r"(?:\]|:)?(?: ?\| ?|[ \t])?"), _take_time),
    Wrapper("cri", "s", re.compile(r"(?P<stream>stdout|stderr) [FP] "), _take_stream),
    Wrapper("us-stamp", "01", re.compile(US.pattern + r"(?: ?\| ?| - |[ \t])?"), _take_time),
    # NCCL's own `host:pid:tid [dev] NCCL` looks like a host, and its tail like a task, and is neither.
    Wrapper(
        "srun", " 0123456789", re.compile(r" *(?P<task>\d{1,6}):(?!\d{1,10} (?:\[-?\d+\]|NCCL)) ?"), _take_task, 0.5
    ),
    Wrapper(
        "job-stream",
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_",
        re.compile(
            r"(?P<job>[\w-]{1,80}(?:\.[\w-]{1,80}){0,5}?)\.(?P<host>[\w-]{1,80})\.\w{1,40} "
            r"\[(?P<stream>stdout|stderr|end)\] ?"
        ),
        _take_job_stream,
    ),
    Wrapper(
        "syslog",
        "JFMASOND",
        re.compile(_UNIX_STAMP + r"(?P<host>[\w.-]+) " + r"(?P<program>[^\s:\[]{1,60})(?:\[(?P<pid>\d{1,10})\])?: ?"),
        _take_syslog,
    ),
    Wrapper(
        "iso-syslog",
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789",
        re.compile(r"(?P<host>[\w.-]{1,80}) " + _PROGRAM),
        _take_iso_syslog,
    ),
    # Before a stamp of the kernel nothing but the name of a host stands.
    Wrapper(
        "pdsh-dmesg",
        "",
        re.compile(
            r"(?P<host>[\w.-]{1,80}): (?=\[(?:[A-Z][a-z]{2} [A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d \d{4}|"
            r" {0,8}\d{1,9}\.\d{6})\] )"
        ),
        _take_host,
    ),
    Wrapper("compose", "", re.compile(r"(?P<svc>[\w.-]{1,80})\s+\| ?"), _take_service, 0.6),
    Wrapper(
        "pdsh",
        "",
        re.compile(r"(?P<host>[\w.-]{1,80}):(?!\d{1,10}(?::\d{1,10})? (?:\[-?\d+\]|NCCL)) ?"),
        _take_host,
        0.6,
    ),
    Wrapper(
        "stern",
        "",
        re.compile(r"(?P<pod>[a-z0-9][\w.]{0,250}-[\w.-]{0,250}) (?P<container>[a-z][\w-]{0,60}) "),
        _take_pod,
        0.8,
    ),
    Wrapper("pod", "", re.compile(r"(?P<pod>[a-z0-9][\w.]{0,250}-[\w.-]{0,250})(?: ?\| ?| )"), _take_pod, 0.8),
)

_ALWAYS: Final = tuple(wrapper for wrapper in WRAPPERS if wrapper.share is None)
_AMBIGUOUS: Final = tuple(wrapper for wrapper in WRAPPERS if wrapper.share is not None)
_REPEATED: Final = re.compile(r" ?\[repeated (\d+)x across cluster\]")
_DIGITS: Final = re.compile(r"\d+")
_META_STREAM: Final = re.compile(r"^\S+ (stdout|stderr) ")


@lru_cache(maxsize=256)
def _by_first(ambiguous: frozenset[str]) -> tuple[dict[str, tuple[Wrapper, ...]], tuple[Wrapper, ...]]:
    """Return the wrappers to try by the first character; of the ambiguous ones, those named. Made once, not a file."""
    wrappers = tuple(w for w in WRAPPERS if w.share is None or w.name in ambiguous)
    anywhere = tuple(wrapper for wrapper in wrappers if not wrapper.first)
    table: dict[str, tuple[Wrapper, ...]] = {}
    for character in {c for wrapper in wrappers for c in wrapper.first}:
        table[character] = tuple(w for w in wrappers if not w.first or character in w.first)
    return table, anywhere


class Peeler:
    """Takes the prefixes off the lines of one file."""

    def __init__(self, profile: Profile, years: Years) -> None:
        self._years = years
        self._counts = profile.counts
        self._table, self._anywhere = _by_first(frozenset(profile.counts))

    def ends(self, text: str) -> list[int]:
        """Return where the prefixes of a line end, the outermost first."""
        ends: list[int] = []
        self.peel(text, ends=ends)
        return ends

    def peel(self, text: str, meta: str = "", *, ends: list[int] | None = None) -> tuple[Facts, str]:
        """Return what the prefixes say and the line without them; `ends` takes where each of them ends."""
        facts = Facts()
        if meta:
            _read_meta(facts, meta)
        used: dict[str, int] = {}
        at = 0
        for _ in range(_MAX_PREFIXES):
            if at >= len(text):
                break
            if at and text[at] == "{":
                inner = _record_text(facts, text[at:])
                if inner is None:
                    break
                text, at = inner, 0
                continue
            for wrapper in self._table.get(text[at], self._anywhere):
                if wrapper.share is not None and used.get(wrapper.name, 0) >= self._counts[wrapper.name]:
                    continue
                match = wrapper.pattern.match(text, at)
                if match is None or match.end() == at or not wrapper.take(facts, match):
                    continue
                if wrapper.name == "syslog":
                    self._syslog_time(facts, match)
                used[wrapper.name] = used.get(wrapper.name, 0) + 1
                at = match.end()
                if ends is not None:
                    ends.append(at)
                break
            else:
                break
        rest = text[at:]
        if rest.endswith("across cluster]"):
            repeated = _REPEATED.search(rest)
            if repeated:
                facts.repeated = int(repeated[1])
                rest = rest[: repeated.start()] + rest[repeated.end() :]
        return facts, rest

    def _syslog_time(self, facts: Facts, match: re.Match[str]) -> None:
        hour, minute, second = (int(part) for part in match["hms"].split(":"))
        fraction = match["sub"][1:] if match["sub"] else None
        moment = self._years.moment(
            MONTHS[match["mname"].lower()], int(match["mday"]), (hour, minute, second), fraction
        )
        if moment is not None:
            _keep_moment(facts, moment)


# A progress bar: any text, a percentage, the bar.
BAR: Final = re.compile(r"\d{1,3}%\s?\|")


def _record_text(facts: Facts, text: str) -> str | None:
    """Return the text of a JSON record that stands behind a prefix, and read what else it says."""
    try:
        record: object = msgspec.json.decode(text)
    except msgspec.DecodeError:
        return None
    if not isinstance(record, dict):
        return None
    for key in ("log", "message", "MESSAGE", "textPayload", "msg"):
        value = cast("dict[str, object]", record).get(key)
        if isinstance(value, str):
            _read_meta(facts, text)
            return value.rstrip("\n")
    return None


_META_TIME: Final = re.compile(
    r'"(?:time|timestamp|ts|@timestamp|date|__REALTIME_TIMESTAMP|_SOURCE_REALTIME_TIMESTAMP)"\s*:\s*"?([^",}]+)'
)
_META_NAME: Final = re.compile(
    r'"(?P<key>pod_name|podName|pod|host|hostname|_HOSTNAME|node_name|nodeName|container_name|stream)"'
    r'\s*:\s*"(?P<value>[^"]*)"'
)


def _read_meta(facts: Facts, meta: str) -> None:
    """Read what containers say beside the text: one level per line, the outermost first."""
    for level in meta.split("\n"):
        if not level.startswith("{"):
            moment = ISO.match(level)
            stamp = moment_of(moment) if moment else None
            if stamp is not None:
                _keep_moment(facts, stamp)
            stream = _META_STREAM.match(level)
            facts.stream = stream[1] if stream else facts.stream
            continue
        time = _META_TIME.search(level)
        if time is not None:
            stamp = _record_time(time[1].strip())
            if stamp is not None:
                _keep_moment(facts, stamp)
        for name in _META_NAME.finditer(level):
            key, value = name["key"], name["value"]
            if key in ("pod_name", "podName", "pod"):
                facts.pod = value
            elif key in ("host", "hostname", "_HOSTNAME", "node_name", "nodeName"):
                facts.host = value
            elif key == "stream":
                facts.stream = value


def _record_time(text: str) -> Moment | None:
    match = ISO.match(text)
    if match is not None:
        return moment_of(match)
    try:
        number = float(text)
    except ValueError:
        return None
    # Seconds, milliseconds, microseconds or nanoseconds since 1970: told apart by their size.
    for scale in (1_000_000_000, 1_000_000, 1_000, 1):
        ns = number * scale
        if 9e17 < ns < 4e18:
            return Moment(int(ns), "exact")
    return None


@dataclass(slots=True)
class _Tally:
    lines: int = 0
    values: set[str] = field(default_factory=lambda: set[str]())

    def repeats(self) -> bool:
        """Say whether values come again, as machines do: thrice on average, twice where they differ in numbers only."""
        numbered = len({_DIGITS.sub("", value) for value in self.values}) == 1
        return len(self.values) <= max(1, self.lines // (2 if numbered else 3))


def profile_of(lines: Sequence[str], years: Years) -> Profile:
    """Find the ambiguous prefixes that most of a file's first lines have.

    Works from outside in: the prefix that most lines share is taken off, and what is left is looked at again. A
    prefix of hosts or pods must also repeat: as many different values as lines are words, not machines.
    """
    counts: dict[str, int] = {}
    lines = [line for line in lines if line.strip() and not BAR.search(line)]
    lines = lines[:: max(1, len(lines) // _PROFILE_LINES)]
    for _ in range(5):
        peeler = Peeler(Profile(counts), years)
        rests = [rest for rest in (peeler.peel(line)[1] for line in lines) if rest.strip()]
        rests = [rest for rest in rests if not rest.startswith(("srun: ", "slurmstepd: "))]
        if len(rests) < 3:
            break
        best: tuple[float, str] | None = None
        for wrapper in _AMBIGUOUS:
            if counts.get(wrapper.name, 0) >= 2 or wrapper.share is None:
                continue
            tally = _Tally()
            for rest in rests:
                match = wrapper.pattern.match(rest)
                if match is not None and wrapper.take(Facts(), match):
                    tally.lines += 1
                    tally.values.add(match[0].strip())
            share = tally.lines / len(rests)
            repeats = wrapper.name in ("srun", "index") or tally.repeats()
            if share >= wrapper.share and repeats and (best is None or share > best[0]):
                best = (share, wrapper.name)
        if best is None:
            break
        counts = {**counts, best[1]: counts.get(best[1], 0) + 1}
    return Profile(counts)


def first_time(facts: Facts, rest: str, years: Years) -> Moment | None:
    """Return the time of a line: of its prefixes, else the first that stands near its beginning."""
    return facts.moment if facts.moment is not None else first_moment(rest[:160], years)
