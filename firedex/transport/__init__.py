"""Protocols between the parts of a site: HTTP, MQTT, MQTT-SN and the event stamp.

This package owns message formats and access to the service. It must not import planning, models,
the service, the gateway or the clients.
"""
