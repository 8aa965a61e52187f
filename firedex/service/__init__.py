"""The configuration service: stores registrations, plans, and configures the network."""
