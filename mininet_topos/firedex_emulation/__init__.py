"""Emulated sites: Mininet topologies, switch set-up and the runner that measures them."""
