"""A measured run for readers: HTML and Markdown pages, plots, and tables on the terminal.

This package formats measurements; it computes none.
"""
