"""``firedex up``: all parts of a site at once, kept running, stopped together."""
