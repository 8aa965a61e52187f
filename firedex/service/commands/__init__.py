"""The commands of the service: ``serve``, ``tokens``, and the clients of its API.

Owns options, texts and output. The clients use the API only; they know neither the database nor
the planner.
"""
