"""Organisations with certificates; the tests of the federation use the same."""

from tests.federation.conftest import fire, organisations, port

__all__ = ["fire", "organisations", "port"]
