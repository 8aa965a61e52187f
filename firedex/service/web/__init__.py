"""The web interface of the service: REST API, event streams, and the dashboard's mount.

Owns HTTP: routing, authentication, limits, errors and the OpenAPI document. It contains no SQL and
no planning; handlers call `firedex.service.core` and the stores of `firedex.service.state`.
"""
