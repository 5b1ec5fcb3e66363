"""The process that makes segments beside a collector: `maker.HelperMaker` starts it and tells it what to do."""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import sys
from pathlib import Path
from typing import Final

import msgspec

from mycroft.errors import MycroftError
from mycroft.loaders.collector.maker import LocalMaker, Order, Reply
from mycroft.tracer.arrow import pa

_NICER: Final = 5


def serve(root: Path) -> None:
    """Do what is asked on standard input until it ends: what a helper is."""
    with contextlib.suppress(OSError):
        os.nice(_NICER)  # acknowledging comes first
    # Signals to the whole service are for the collector, which still needs us for the last file of the log.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    # A file of the log becomes a million small objects at once, none of which is part of a cycle: looking for cycles
    # while they are made takes longer than making them. In between is time enough.
    gc.disable()
    maker = LocalMaker(root)
    # Nothing but replies may be written to what the collector reads.
    replies = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    for line in sys.stdin.buffer:
        order = msgspec.json.decode(line, type=Order)
        try:
            if order.log is not None:
                reply = Reply(made=maker.of_log(order.log))
            else:
                reply = Reply(segment=maker.of_segments(order.segments))
        except OSError as error:
            reply = Reply(error=error.strerror or str(error), errno=error.errno or 5)
        except (MycroftError, pa.ArrowException) as error:
            reply = Reply(error=(str(error).splitlines() or [type(error).__name__])[0])
        replies.write(msgspec.json.encode(reply) + b"\n")
        replies.flush()
        del reply
        gc.collect()


if __name__ == "__main__":
    serve(Path(sys.argv[1]))
