"""``python -m firedex.gateway``: the gateway without the rest of the command line."""

from firedex.gateway.command import gateway

__all__: list[str] = []

if __name__ == "__main__":
    gateway(auto_envvar_prefix="FIREDEX_GATEWAY")
