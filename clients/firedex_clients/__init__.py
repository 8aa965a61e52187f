"""Publisher and subscriber libraries: one MQTT connection per flow. Knows only ``firedex.wire``."""
