"""A reproducible companion to ICML 2024 papers."""

__version__ = "0.1.0"
