"""Amas Code: a coding agent for the terminal that works with any model."""

__version__ = "0.1.0"
