"""Exchange of events between sites.

One federator runs beside the broker of each site. It learns what its site wants, announces it to
the other sites, and forwards events hop by hop over links between federators. Brokers and clients
are not changed. Decisions are in `node` and its parts, without sockets and files; sockets are in
`links` and `broker_session`, files in `journal`.
"""
