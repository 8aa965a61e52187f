"""Networks of several sites, for federations: one description of each, in two emulated forms.

- ``network``: the description: sites, links, bandwidths and delays. Pure.
- ``six_sites``, ``fifteen_sites``, ``twenty_five_sites``, ``fifty_sites``: one network each, in a
  file that opens with a drawing.
- ``catalog``: these networks by their number of sites.
- ``hosts``: what both forms offer to the processes that run on them.
- ``switch_form``: a site is an Open vSwitch with one host (Mininet).
- ``namespace_form``: a site is a network namespace without a switch; starts within seconds.

Both forms use the same addresses, so the same federation file works on both. This package does not
know which processes run on the hosts.
"""
