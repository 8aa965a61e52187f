"""The durable state of the service: tables, migrations, stores, tokens, and the values in them.

This is the only package with SQL for the state. It must not import the planner, the web interface
or the command line.
"""
