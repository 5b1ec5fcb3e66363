"""Puts the watch together: window, state, alerts."""

from __future__ import annotations

from mycroft.app.alerts import Alerter, read_targets
from mycroft.app.live.config import LiveConfig
from mycroft.app.live.state import LiveState
from mycroft.app.live.watch import Watch
from mycroft.app.state import State
from mycroft.loaders.collector import Window


class Watching:
    """A watch with its alerter; `run` ends with `stop`."""

    def __init__(self, config: LiveConfig) -> None:
        """Read the targets of alerts and take the data folder.

        Raises:
            ConfigError: if the targets cannot be used.
            WatchError: if another watch has the folder.
        """
        targets = read_targets(config.alerts_file) if config.alerts_file is not None else ()
        state = LiveState(State(config.data_dir))
        self.alerter = Alerter(targets, state, url=config.url or "http://localhost:8050")
        window = Window(config.store_dir, span_s=config.window_s)
        self.watch = Watch(config, state, window, told=self.alerter.told, each_tick=self.alerter.beat)

    def run(self) -> None:
        """Watch until `stop`."""
        self.alerter.start()
        try:
            self.watch.run()
        finally:
            self.alerter.stop()

    def stop(self) -> None:
        """Ask `run` to end; from any thread or a signal handler."""
        self.watch.stop()
