"""The gateway: a relay beside the broker that drops a flow's QoS 0 events by its drop rate."""
