"""MQTT 3.1.1 and 5: packets as bytes and values, and the choice of the protocol version.

Nothing here opens a socket or reads a clock, so the code suits any MQTT session that manages its
own packet identifiers, such as a gateway or a bridge between sites.
"""
