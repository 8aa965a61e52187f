"""Programs that tests run inside a sandbox; each prints its observations as JSON."""
