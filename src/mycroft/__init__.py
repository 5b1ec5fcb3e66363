"""Mycroft: who, what and why, when a distributed training job stalls or slows."""

__version__ = "0.1.0"
