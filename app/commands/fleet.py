"""`mycroft fleet`: what happened on all hosts over hours and days; SQL over it; and a store beyond one machine."""

from __future__ import annotations

import argparse
import json
import socket
import sys
from typing import TYPE_CHECKING, Any

from mycroft.app.commands import options
from mycroft.app.commands.command import Command

if TYPE_CHECKING:
    from mycroft.analysis.fleet import Executor, Window
    from mycroft.analysis.fleet.report import FleetReport, Happened
    from mycroft.loaders.fleet import FleetReader, FleetStore

_SHOWN = 20
STORE_HELP = "a fleet's store: a folder or s3://bucket/prefix (default: that of the collector in --data)"


def span(text: str) -> float:
    """Read a span of time, such as `90m`, `24h` or `7d`, as seconds."""
    from mycroft.app.fleet import span_s

    value = span_s(text)
    if value is not None:
        return value
    raise argparse.ArgumentTypeError(f"{text}: a span such as 90m, 24h or 7d was expected, of at most a year")


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    verbs = parser.add_subparsers(dest="fleet_verb", metavar="report|sql|push|compact|retain", required=True)
    report = verbs.add_parser("report", help="incidents, repeat offenders, cost in GPU-hours, hardware that stands out")
    report.add_argument("--json", action="store_true", help="as one JSON object")
    sql = verbs.add_parser("sql", help="answer one SELECT over the rows and roll-ups of a window")
    sql.add_argument(
        "query", metavar="QUERY", help='such as "SELECT host, max(idle_max_ms) FROM host_minute GROUP BY 1"'
    )
    sql.add_argument("--format", choices=("table", "csv", "json"), default="table", help="(default: %(default)s)")
    sql.add_argument("--max-rows", type=options.count, default=10_000, metavar="N", help="rows at most (%(default)s)")
    sql.add_argument("--timeout", type=options.seconds, default=60.0, metavar="S", help="seconds at most (%(default)s)")
    sql.add_argument("--max-memory", type=options.count, default=1024, metavar="MIB", help="MiB at most (%(default)s)")
    for verb in (report, sql):
        options.add_data(verb)
        verb.add_argument("--store", metavar="URL", help=STORE_HELP)
        verb.add_argument(
            "--last", type=span, default=86_400.0, metavar="SPAN", help="until now, as 90m, 24h, 7d (24h)"
        )
    report.add_argument(
        "--executor", choices=("local", "processes", "ray"), default="local", help="who works (default: %(default)s)"
    )
    report.add_argument("--ray-address", default="auto", metavar="HOST:PORT", help="of a cluster that runs (auto)")
    push = verbs.add_parser("push", help="copy what a collector has to a fleet's store: a folder or s3://bucket/prefix")
    options.add_data(push)
    push.add_argument("store", metavar="URL", help="a folder, also of a shared file system, or s3://bucket/prefix")
    push.add_argument("--name", default=None, help="name of this collector in the store (default: of this host)")
    push.add_argument(
        "--everything", action="store_true", help="the collector has stopped for good: what it has will not change"
    )
    compact = verbs.add_parser(
        "compact", help="put small segments of a fleet's store together; readers are undisturbed"
    )
    compact.add_argument("store", metavar="URL", help="a folder, also of a shared file system, or s3://bucket/prefix")
    compact.add_argument(
        "--at-least", type=options.count, default=8, metavar="N", help="of a table and hour; fewer stay (%(default)s)"
    )
    retain = verbs.add_parser("retain", help="remove old history from a fleet's store, and files of writers that died")
    retain.add_argument("store", metavar="URL", help="a folder, also of a shared file system, or s3://bucket/prefix")
    retain.add_argument(
        "--older-than", type=span, required=True, metavar="SPAN", help="of rows that leave, as 30d; at most a year"
    )
    retain.add_argument(
        "--table", action="append", metavar="NAME", type=_table, help="only this table; may be repeated (all)"
    )
    retain.add_argument(
        "--grace", type=span, default=3600.0, metavar="SPAN", help="how long readers may still read what has left (1h)"
    )
    retain.add_argument("--dry-run", action="store_true", help="say what would leave, and change nothing")


def _table(text: str) -> str:
    from mycroft.loaders.collector.retention import KEEP_S

    if text in KEEP_S:
        return text
    raise argparse.ArgumentTypeError(f"{text}: expected a table of {', '.join(sorted(KEEP_S))}")


def run(arguments: argparse.Namespace) -> int:
    """Run one of the verbs."""
    verbs = {"report": _report, "sql": _sql, "push": _push, "compact": _compact, "retain": _retain}
    return verbs[arguments.fleet_verb](arguments)


def _opened(arguments: argparse.Namespace) -> tuple[FleetReader, Window]:
    from mycroft.app.fleet import last
    from mycroft.loaders.fleet import open_fleet

    url = arguments.store or str(options.data_dir_if_any(arguments))
    return open_fleet(url), last(arguments.last)


def _incidents(arguments: argparse.Namespace, window: Window) -> tuple[list[Happened], bool]:
    """Return what the watches found, that of --data and those that were pushed to --store; and whether there is any."""
    from mycroft.app import fleet
    from mycroft.loaders.fleet import FleetStore, open_place

    data = options.data_dir_if_any(arguments)
    own = fleet.incidents_of(data, window) if data.is_dir() else []
    pushed = (
        fleet.pushed_incidents(FleetStore(open_place(arguments.store)), window) if arguments.store else fleet.NOBODY
    )
    for text in pushed.problems:
        print(f"mycroft: {_plain(text)}", file=sys.stderr)
    return fleet.all_incidents(own, pushed.incidents), bool(pushed.collectors) or fleet.was_watched(data)


def _executor(arguments: argparse.Namespace) -> Executor:
    from mycroft.analysis.fleet import LocalExecutor, ProcessExecutor, RayExecutor

    if arguments.executor == "ray":
        return RayExecutor(arguments.ray_address)
    return ProcessExecutor() if arguments.executor == "processes" else LocalExecutor()


def _report(arguments: argparse.Namespace) -> int:
    from mycroft.app import fleet

    reader, window = _opened(arguments)
    data = options.data_dir_if_any(arguments)
    incidents, is_watched = _incidents(arguments, window)
    found = fleet.report(reader, incidents, window, executor=_executor(arguments))
    if arguments.json:
        print(json.dumps(found.to_dict(), ensure_ascii=False, sort_keys=True))
    else:
        print("\n".join(lines(found)))
    if not is_watched:
        where = f"{data}, and none pushed to {arguments.store}" if arguments.store else data
        print(f"mycroft: no watch has looked at {where}: incidents are not known, which is not none", file=sys.stderr)
    return 0


def lines(report: FleetReport) -> list[str]:
    """Return a report as text for a terminal."""
    from mycroft.app import words

    many = words.plural(len(report.incidents), "incident")
    said = [f"{many} of {words.plural(report.jobs, 'job')}, {_time(report.since)} to {_time(report.until)} UTC"]
    said.append(f"  stood or crashed: {report.gpu_hours_standing:,.1f} GPU-hours of whole jobs")
    said.append(f"  lost to slowness: {report.gpu_hours_slow:,.1f} GPU-hours, where the verdicts could say")
    if report.not_costed:
        said.append(f"  not in either sum: {words.plural(report.not_costed, 'incident')}, size or loss is not known")
    if report.incidents:
        said += ["", "By class"]
        said += [f"  {count:5}  {words.category(name)}" for name, count in report.by_category.items()]
        said += ["", "Incidents, the latest first"]
        for one in list(report.incidents)[::-1][:_SHOWN]:
            end = "goes on" if one.closed is None else words.duration((one.closed - one.opened) * 1e9)
            said.append(f"  {_time(one.opened)}  {_plain(one.title)}  {end}  {one.confidence}  {_plain(one.summary)}")
        if len(report.incidents) > _SHOWN:
            said.append(f"  and {len(report.incidents) - _SHOWN} more (--json)")
    said += ["", "Repeat offenders: alone and surely to blame, at least twice"]
    for offender in report.offenders[:_SHOWN]:
        said.append(
            f"  {offender.kind} {_plain(offender.name)}: {words.plural(offender.incidents, 'incident')} in "
            f"{words.plural(offender.jobs, 'job')}, {offender.gpu_hours:,.1f} GPU-hours "
            f"({', '.join(map(words.category, offender.categories))})"
        )
    if not report.offenders:
        said.append("  none")
    said += ["", "Hardware that stands out in several jobs: look at it, nothing is proven"]
    for one in report.stand_out[:_SHOWN]:
        said.append(
            f"  {_plain(one.host)}: {one.what}; {len(one.jobs)} of {words.plural(one.of_jobs, 'job')}, "
            f"at least {one.ratio:.2f} times the median host"
        )
    if not report.stand_out:
        said.append("  none")
    return said


def _time(seconds: float) -> str:
    import time

    return time.strftime("%Y-%m-%d %H:%M", time.gmtime(seconds))


def _plain(text: str) -> str:
    # Names come from strangers' hosts and must not speak to the terminal.
    return "".join(char if char.isprintable() else "·" for char in text)[:200]


def _sql(arguments: argparse.Namespace) -> int:
    from mycroft.app import fleet
    from mycroft.app.commands.sql import write_rows
    from mycroft.app.plain_rows import plain_rows

    reader, window = _opened(arguments)
    incidents, _ = _incidents(arguments, window)
    answer = reader.guarded_sql(
        arguments.query,
        {"incidents": fleet.incident_table(incidents)},
        since_ns=window.since_ns,
        until_ns=window.until_ns,
        row_limit=arguments.max_rows,
        time_limit_s=arguments.timeout,
        memory_limit=f"{arguments.max_memory}MiB",
    )
    rows: list[list[Any]] = plain_rows(answer.frame)
    write_rows(arguments.format, answer.frame.columns, rows)
    if answer.cut:
        print(f"mycroft: only the first {len(rows):,} rows are shown; see --max-rows", file=sys.stderr)
    return 0


def _push(arguments: argparse.Namespace) -> int:
    from mycroft.app.fleet import push_incidents
    from mycroft.loaders.fleet import FleetStore, open_place, ship

    data = options.data_dir_if_any(arguments)
    store = FleetStore(open_place(arguments.store))
    name = arguments.name or socket.gethostname()
    shipped = ship(data / "live" / "store", store, origin=name, everything=arguments.everything)
    incidents = push_incidents(data, store, origin=name)
    print(
        f"{shipped.segments} segments, {shipped.size_bytes / 1e6:,.1f} MB, copied to {store.place.url}; "
        f"{shipped.waiting} may still change and wait; "
        + ("no watch has run" if incidents is None else f"incidents of a year: {incidents:,}")
    )
    return 0


def _of_fleet(url: str) -> FleetStore:
    """Open a store to change what it has; a collector alone changes its own."""
    from mycroft.loaders.fleet import FleetStore, PlaceError, open_fleet, open_place

    reader = open_fleet(url)
    if reader.is_collectors:
        raise PlaceError(f"{reader.url}: a collector's own store, which it keeps to its limits (--keep, --keep-gb)")
    return FleetStore(open_place(reader.url))


def _compact(arguments: argparse.Namespace) -> int:
    from mycroft.app import words
    from mycroft.loaders.fleet import compact

    store = _of_fleet(arguments.store)
    done = compact(store, at_least=arguments.at_least)
    for text in done.problems:
        print(f"mycroft: left as it is: {_plain(text)}", file=sys.stderr)
    print(
        f"{words.plural(done.parts, 'segment')} of {store.place.url} became {done.made:,}; "
        f"their files are deleted by `mycroft fleet retain`"
        + (f"; {done.overtaken} left to others, who were faster" if done.overtaken else "")
    )
    return 0


def _retain(arguments: argparse.Namespace) -> int:
    import time

    from mycroft.app import words

    store = _of_fleet(arguments.store)
    url = store.place.url
    before_ns = int((time.time() - arguments.older_than) * 1e9)
    if arguments.dry_run:
        left, deleted = store.old(before_ns, tables=arguments.table), None
    else:
        done = store.retain(before_ns, tables=arguments.table, grace_s=arguments.grace)
        left, deleted = done.left_out, done.deleted
    size = sum(segment.size_bytes for segment in left)
    would = "would be" if arguments.dry_run else "are"
    print(
        f"{words.plural(len(left), 'segment')}, {size / 1e6:,.1f} MB, of rows before {_time(before_ns / 1e9)} UTC "
        f"{would} left out of {url}"
    )
    if deleted is not None:
        print(f"{words.plural(deleted, 'file')} of earlier calls, or of writers that died, deleted")
    return 0


COMMAND = Command(
    name="fleet",
    summary="what happened on all hosts over hours and days: report, SQL, and a store beyond one machine",
    configure=configure,
    run=run,
    epilog="docs/scale-out.md tells how far one machine goes, and what comes after it",
)
