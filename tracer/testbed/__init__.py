"""Training jobs of real processes without GPUs, and the faults that can really be caused in them."""

from mycroft.tracer.testbed.job import Outcome, run_job
from mycroft.tracer.testbed.scenarios import SCENARIOS, Scenario, TestbedError, scenario

__all__ = ["SCENARIOS", "Outcome", "Scenario", "TestbedError", "run_job", "scenario"]
