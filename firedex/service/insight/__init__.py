"""Views of the running site: overview, topics, subscriptions, deviations from predictions.

Reads the state and asks the controller; changes nothing, and knows no HTTP server.
"""
