"""``simulate-sweep``: simulate a scenario for every combination of parameter values.

Owns the grid, paths into a scenario, and the report. The simulator is ``firedex_models``.
"""
