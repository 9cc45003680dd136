"""netlab reproduces and diagnoses tail latency in networks made of Linux namespaces."""

__version__ = "0.1.0"
