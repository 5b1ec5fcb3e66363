"""The producing side: trace files, the recorder, the NCCL profiler plugin; knows nothing else of ours."""

from mycroft.tracer._core import TraceError, TracerOffError
from mycroft.tracer.export import export_bytes, export_trace, read_export
from mycroft.tracer.plugin import plugin_path
from mycroft.tracer.recording import Recorder
from mycroft.tracer.trace import Communicator, Process, Trace, TraceFile, open_trace

__all__ = [
    "Communicator",
    "Process",
    "Recorder",
    "Trace",
    "TraceError",
    "TraceFile",
    "TracerOffError",
    "export_bytes",
    "export_trace",
    "open_trace",
    "plugin_path",
    "read_export",
]
