"""Benchmarks of gateway and client library on loopback, each beside what it is compared with."""

from firedex.transport_benchmarks.gateway_speed import gateway_speed
from firedex.transport_benchmarks.library_throughput import library_throughput

__all__ = ["gateway_speed", "library_throughput"]
