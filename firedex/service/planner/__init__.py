"""The planner: from the state to an active configuration.

It reads the state, plans, pushes the rules to the controller and activates the configuration. It
knows nothing of HTTP requests to the service; the service notifies it and receives its notices.
"""
