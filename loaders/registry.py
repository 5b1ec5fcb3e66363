"""Every format that can be read, in order of detection: the first loader that recognises a file reads it.

A new format is a module of its own and one line here.
"""

from __future__ import annotations

from typing import Final

from mycroft.loaders.base import Loader
from mycroft.loaders.chakra import ChakraLoader
from mycroft.loaders.comma import CommaLoader
from mycroft.loaders.example_profiler import ExampleProfilerLoader
from mycroft.loaders.flight_recorder import FlightRecorderLoader
from mycroft.loaders.inspector import InspectorLoader, InspectorPrometheusLoader
from mycroft.loaders.kineto import KinetoLoader
from mycroft.loaders.npkit import NpkitLoader
from mycroft.loaders.nsight import NsightLoader
from mycroft.loaders.process_state import ProcessStateLoader
from mycroft.loaders.ras import RasJsonLoader
from mycroft.loaders.ring import RingLoader, TraceExportLoader
from mycroft.loaders.stacks import StacksLoader
from mycroft.loaders.text.reader import TextLoader
from mycroft.loaders.topology import TopologyLoader
from mycroft.loaders.xpu_timer import XpuTimerLoader, XpuTimerMetricsLoader

# The topology comes first: later loaders ask who is in which group. Text comes last: it takes whatever is readable.
LOADERS: Final[tuple[Loader, ...]] = (
    TopologyLoader(),
    ProcessStateLoader(),
    RingLoader(),
    TraceExportLoader(),
    FlightRecorderLoader(),
    KinetoLoader(),
    InspectorLoader(),
    InspectorPrometheusLoader(),
    RasJsonLoader(),
    CommaLoader(),
    ExampleProfilerLoader(),
    NpkitLoader(),
    XpuTimerLoader(),
    XpuTimerMetricsLoader(),
    ChakraLoader(),
    NsightLoader(),
    StacksLoader(),
    TextLoader(),
)
