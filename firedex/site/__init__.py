"""``firedex up``: start all parts of a site, keep them running and stop them together.

It knows the commands of the parts and how to check that they work, but imports none of them.
"""
