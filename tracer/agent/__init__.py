"""The agent of one host: follows every trace file there, reads only, and hands batches to a collector."""

from mycroft.tracer.agent.agent import Agent, AgentSettings
from mycroft.tracer.agent.batch import Batch, BatchError, Gap, RingStatus, decode, encode, key_of
from mycroft.tracer.agent.sender import AgentError

__all__ = [
    "Agent",
    "AgentError",
    "AgentSettings",
    "Batch",
    "BatchError",
    "Gap",
    "RingStatus",
    "decode",
    "encode",
    "key_of",
]
