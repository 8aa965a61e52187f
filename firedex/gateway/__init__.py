"""The gateway: a relay beside the broker that drops QoS 0 events of a flow at its drop rate.

This package owns the sockets of subscribers and sensors (MQTT over TCP, MQTT-SN over UDP), the
connections to the broker made for them, and the event counts. It follows the configuration service
through `firedex.transport`. It must not know how drop rates are planned: it imports neither
planning nor models.
"""
