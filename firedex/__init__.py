"""FireDeX: plan, predict and enforce which MQTT events get through a network that is too small."""

__version__ = "0.1.0"
