"""Puts the watch together: window, state, alerts, spans."""

from __future__ import annotations

from mycroft.app.alerts import Alerter, read_targets
from mycroft.app.live.config import LiveConfig
from mycroft.app.live.incidents import Event
from mycroft.app.live.spans import Spans
from mycroft.app.live.state import Incident, LiveState
from mycroft.app.live.watch import Watch
from mycroft.app.state import State
from mycroft.loaders.collector import Window


class Watching:
    """A watch with its alerter; `run` ends with `stop`."""

    def __init__(self, config: LiveConfig) -> None:
        """Read the targets of alerts and take the data folder.

        Raises:
            ConfigError: if the targets of alerts or the receiver of spans cannot be used.
            WatchError: if another watch has the folder.
        """
        targets = read_targets(config.alerts_file) if config.alerts_file is not None else ()
        state = LiveState(State(config.data_dir))
        url = config.url or "http://localhost:8050"
        self.alerter = Alerter(targets, state, url=url)
        window = Window(config.store_dir, span_s=config.window_s)
        self.spans = Spans(config.otlp, state, url=url) if config.otlp else None
        self.watch = Watch(config, state, window, told=self._told, each_tick=self.alerter.beat, spans=self.spans)

    def _told(self, event: Event, incident: Incident, title: str) -> None:
        self.alerter.told(event, incident, title)
        if self.spans is not None:
            self.spans.told(event, incident, title)

    def run(self) -> None:
        """Watch until `stop`."""
        self.alerter.start()
        try:
            self.watch.run()
        finally:
            self.alerter.stop()
            if self.spans is not None:
                self.spans.stop()

    def stop(self) -> None:
        """Ask `run` to end; from any thread or a signal handler."""
        self.watch.stop()
