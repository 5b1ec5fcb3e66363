"""Always on: the collector's HTTP side, the watch, incidents, and their pages."""
