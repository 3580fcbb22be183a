"""The package version, in one place that nothing needs to be imported for."""

__version__ = "0.1.0"
