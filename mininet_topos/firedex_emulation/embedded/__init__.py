"""The testbed without root and switches: real parts on loopback, and a link in user space.

::

    subscriber k          the link                         gateway
    127.1.R.k:p  ──▶  127.1.R.254:g  127.2.R.k:p  ──▶  127.0.0.1:g
                 ◀── queued by class, at the bandwidth ◀──

R is the number of the run. The service and the gateway see subscriber k at 127.2.R.k. Its sockets
are bound to 127.1.R.k with the same ports and connect to the link, which opens a socket with the
address 127.2.R.k for each. The link queues packets by class and sends them at the bandwidth.

This package must not import Mininet.
"""
