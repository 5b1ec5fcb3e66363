"""Training jobs in virtual time, up to 100,000 ranks, with the faults of which the truth is known."""

from mycroft.tracer.simulator.scenarios import EXPERTS, FAULTS, TOPOLOGIES, Simulation, SimulatorError, simulation
from mycroft.tracer.simulator.simulate import Simulated, simulate, truth
from mycroft.tracer.simulator.tables import export_tables, record_tables, simulated_traces

__all__ = [
    "EXPERTS",
    "FAULTS",
    "TOPOLOGIES",
    "Simulated",
    "Simulation",
    "SimulatorError",
    "export_tables",
    "record_tables",
    "simulate",
    "simulated_traces",
    "simulation",
    "truth",
]
