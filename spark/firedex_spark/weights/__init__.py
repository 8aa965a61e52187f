"""``fit-utility-weights``: learn the utility weights of topics from feedback.

Owns the check of feedback, the statistical model of ratings, the profiles and the report. Knows
nothing of delivery records.
"""
