"""What people see: the words and figures of the site now (pure), and the pages that show them.

Knows the contract and the models, nothing of the service: the pages ask the service's interface
with the visitor's own token, as any other client does, and can do nothing that the token cannot.
"""

__all__ = ["PREFIX"]

PREFIX = "/dashboard/"
"""Where the pages are."""
