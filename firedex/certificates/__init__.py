"""Certificates of a site: its authority, and certificates of sites, parts, switches and clients.

This package makes, stores, revokes and reads certificates. It opens no connection, and does not
know which part uses a certificate.
"""
