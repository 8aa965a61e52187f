"""The dashboard: alerts and figures of a site (pure), and the web pages that show them.

It knows `firedex.wire` and the models, and must not import the service. The pages call the API of
the service with the visitor's own token, like any other client, and have no other rights.
"""

__all__ = ["PREFIX"]

PREFIX = "/dashboard/"
"""Path of the pages."""
