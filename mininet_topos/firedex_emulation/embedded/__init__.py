"""A run without root: the real parts on loopback, and a link between them that shapes and queues.

::

    subscriber k          the link                         gateway
    127.1.R.k:p  ──▶  127.1.R.254:g  127.2.R.k:p  ──▶  127.0.0.1:g
                 ◀── queued by class, at the bandwidth ◀──

Service and gateway know subscriber k as 127.2.R.k. Its sockets leave from 127.1.R.k, by the same
ports, and go to the link, which opens a socket of the known address for each. R is the run's.
"""
