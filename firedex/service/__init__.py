"""The configuration service: registrations in, plans out, the network told."""
