"""What SIGTERM and Ctrl-C do to a command: it stops, clears up, and ends with 143 or 130, whatever it was doing.

An exception raised by the handler unwinds the command, so that temporary folders and child processes are cleared away.
That alone is not enough. DuckDB looks for signals while it works and throws an error of its own in place of the
exception; a loader takes that for an error of the file it reads and goes on with the next; and no handler runs while
native code holds the main thread. So what has been asked for is kept apart from what is raised, and a thread, told by
the C part of the handler, ends the process when the unwinding has not.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
import threading
from types import FrameType, TracebackType
from typing import Final, Self

from mycroft import scratch

INTERRUPTED: Final = 130
TERMINATED: Final = 143
GRACE_S: Final = 10.0
"""How long unwinding may take; ranks of a testbed are stopped and large folders removed meanwhile."""
CLEARING_S: Final = 10.0
_STATUS: Final = {signal.SIGINT: INTERRUPTED, signal.SIGTERM: TERMINATED}
_TOLD: Final = {INTERRUPTED: "mycroft: interrupted", TERMINATED: "mycroft: terminated"}


class Termination:
    """While it is entered, SIGTERM and SIGINT end the command. Main thread only; elsewhere it does nothing.

    `status` is what was asked for: None, 130 or 143. A command that installs handlers of its own is left to them.
    """

    def __init__(self, *, grace_s: float = GRACE_S) -> None:
        self.status: int | None = None
        self._grace_s = grace_s
        self._before: dict[signal.Signals, object] = {}
        self._over = threading.Event()
        self._settling = False

    def __enter__(self) -> Self:
        if threading.current_thread() is not threading.main_thread():
            return self
        self._hears, self._tells = socket.socketpair()
        self._tells.setblocking(False)
        self._wakeup_before = signal.set_wakeup_fd(self._tells.fileno(), warn_on_full_buffer=False)
        # A child made by fork would write to this process's own socket.
        os.register_at_fork(after_in_child=self._forget_in_child)
        for number in _STATUS:
            self._before[number] = signal.signal(number, self._handle)
        threading.Thread(target=self._watch, name="termination", daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self._before:
            return
        self._over.set()
        for number, handler in self._before.items():
            if signal.getsignal(number) == self._handle:
                signal.signal(number, handler)  # pyright: ignore[reportArgumentType]
        signal.set_wakeup_fd(self._wakeup_before)
        self._before = {}
        self._tells.close()

    def settle(self) -> None:
        """Say that the command has ended: a signal is noted from here on, and raises no more."""
        self._settling = True

    def say(self) -> None:
        """Tell on standard error what ended the command."""
        if self.status is not None:
            sys.stderr.write(_TOLD[self.status] + "\n")

    def _handle(self, number: int, _: FrameType | None) -> None:
        if self.status is not None:
            # Raised once: again, it would break off the clearing up.
            return
        self.status = _STATUS[signal.Signals(number)]
        if self._settling:
            return
        if self.status == INTERRUPTED:
            raise KeyboardInterrupt
        raise SystemExit(self.status)

    def _forget_in_child(self) -> None:
        if self._before and threading.current_thread() is threading.main_thread():
            signal.set_wakeup_fd(-1)

    def _watch(self) -> None:
        """Wait for a signal, then for the end of the command; end it if that does not come."""
        asked: signal.Signals | None = None
        with self._hears:
            while True:
                try:
                    number = self._hears.recv(1)
                except TimeoutError:
                    break
                if not number or self._over.is_set():
                    return
                heard = signal.Signals(number[0])
                if heard not in _STATUS or signal.getsignal(heard) != self._handle:
                    continue
                if asked is signal.SIGINT and heard is signal.SIGINT:
                    # Who presses Ctrl-C twice does not want to wait.
                    break
                if asked is None:
                    asked = heard
                    self._hears.settimeout(self._grace_s)
        assert asked is not None
        self._end(_STATUS[asked])

    def _end(self, status: int) -> None:
        """End the process from outside the thread that works: clear up what an ordered exit clears up, and leave."""
        # On a thread of its own, so that a file system that does not answer cannot hold the process.
        clearing = threading.Thread(target=scratch.remove_all, name="clearing", daemon=True)
        clearing.start()
        clearing.join(CLEARING_S)
        self.status = status
        self.say()
        sys.stderr.flush()
        os._exit(status)
