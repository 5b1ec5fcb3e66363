"""`mycroft collect`: takes the batches of agents and keeps them; as a relay, or from a topic of Kafka's protocol."""

from __future__ import annotations

import argparse
import contextlib
import logging
import signal
import sys
import threading

from mycroft.app.commands import options
from mycroft.app.commands.command import Command
from mycroft.errors import MycroftError

LOG = logging.getLogger("mycroft.collector")


class CollectError(MycroftError):
    """Options of a collector that do not go together: says which."""


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    options.add_data(parser)
    options.add_collecting(parser, prefix="")
    relay = parser.add_argument_group("as a relay: summaries of all ranks to a collector above, rows when it asks")
    relay.add_argument("--upstream", metavar="URL", help="the collector above, as http://collector:8060")
    relay.add_argument("--upstream-token-file", metavar="FILE", help="file with the token for the collector above")
    relay.add_argument("--relay-name", metavar="NAME", help="what it is called there (default: this machine's name)")
    relay.add_argument(
        "--summary-seconds", metavar="S", type=options.seconds, help="from one summary to the next (default: 10)"
    )
    topic = parser.add_argument_group("from a topic, instead of from agents")
    topic.add_argument("--from", dest="topic", metavar="URL", help="consume kafka://broker:9092/topic into --store")
    topic.add_argument("--store", metavar="URL", help="the fleet's store: a folder or s3://bucket/prefix")
    topic.add_argument("--group", metavar="NAME", default="mycroft", help="of consumers that share it (%(default)s)")
    topic.add_argument(
        "--kafka-settings", metavar="FILE", help="TLS and SASL of the brokers: lines name=value, as librdkafka has"
    )
    topic.add_argument(
        "--metrics-port", metavar="PORT", type=options.port, help="numbers for Prometheus at /metrics, on --host (none)"
    )


def run(arguments: argparse.Namespace) -> int:
    """Collect until SIGTERM or Ctrl-C."""
    logging.basicConfig(format="%(levelname)s %(name)s: %(message)s", level=logging.WARNING, stream=sys.stderr)
    if arguments.topic is not None:
        return _consume(arguments)
    for name in ("store", "kafka_settings", "metrics_port"):
        if getattr(arguments, name) is not None:
            raise CollectError(f"--{name.replace('_', '-')} goes with --from kafka://broker:9092/topic")
    if arguments.upstream is not None:
        return _relay(arguments)
    for name in ("upstream_token_file", "relay_name", "summary_seconds"):
        if getattr(arguments, name) is not None:
            raise CollectError(f"--{name.replace('_', '-')} goes with --upstream http://collector:8060")
    return _listen(arguments)


def _listen(arguments: argparse.Namespace) -> int:
    from mycroft.app.live.serving import serve_collector
    from mycroft.app.processes import listen

    config = options.live_config(arguments)
    config.tokens()
    listener = listen(config.host, config.port)
    listener.set_inheritable(True)
    host, port = listener.getsockname()[:2]
    print(f"collecting at http://{host}:{port}", flush=True)
    serve_collector(config, listen_fd=listener.fileno())
    return 0


def _relay(arguments: argparse.Namespace) -> int:
    """Collect, and tell the collector above, until SIGTERM."""
    from mycroft.app.live.relay import check
    from mycroft.app.processes import RelayServer

    config = options.live_config(arguments)
    check(config)
    with RelayServer(config) as server:
        print(f"collecting at {server.url}, told to {config.upstream}", flush=True)
        server.wait()
    return 0


def _consume(arguments: argparse.Namespace) -> int:
    """Bring a topic into a store until SIGTERM; what the store or the brokers do not take now is tried again."""
    from mycroft.app.live.consumer import Numbers, consume
    from mycroft.loaders.fleet import FleetStore, open_place
    from mycroft.loaders.fleet.stream import StreamCollector
    from mycroft.tracer.agent.kafka_settings import read_settings

    if not arguments.store:
        raise CollectError("--from needs --store URL: the folder or s3://bucket/prefix that the rows go to")
    settings = read_settings(arguments.kafka_settings)
    store = FleetStore(open_place(arguments.store))
    collector = StreamCollector(arguments.topic, store, group=arguments.group, settings=settings)
    stopping = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stopping.set())
    LOG.setLevel(logging.INFO)
    print(f"consuming {arguments.topic} into {arguments.store} as {arguments.group}", flush=True)
    with contextlib.ExitStack() as stack:
        stack.callback(collector.close)
        if arguments.metrics_port is not None:
            numbers = stack.enter_context(Numbers(collector.counts, arguments.collect_host, arguments.metrics_port))
            print(f"numbers at {numbers.url}", flush=True)
        consume(collector, stopping, round_s=arguments.segment_seconds)
    return 0


COMMAND = Command(
    name="collect",
    summary="take the batches of agents and keep them: acknowledged once they are on disk",
    configure=configure,
    run=run,
    epilog="agents: `mycroft agent URL`; what is kept is read by `mycroft watch`; numbers for Prometheus at /metrics",
)
