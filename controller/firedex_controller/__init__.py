"""OpenFlow: pure rule compilation and a thin controller app. Knows only ``firedex.wire``."""
