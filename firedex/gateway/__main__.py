"""``python -m firedex.gateway``: run the gateway without the other commands."""

from firedex.gateway.command import gateway

__all__: list[str] = []

if __name__ == "__main__":
    gateway(auto_envvar_prefix="FIREDEX_GATEWAY")
