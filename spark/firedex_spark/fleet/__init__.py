"""``plan-sites``: plan many sites, each as ``firedex plan`` would.

Owns the table of sites and the table of plans. Planning itself is ``firedex.planning``.
"""
