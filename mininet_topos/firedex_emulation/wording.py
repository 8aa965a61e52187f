"""Figures as people read them. Pure."""

__all__ = ["delay_text", "share_text"]


def delay_text(seconds: float | None) -> str:
    """Milliseconds below a second."""
    if seconds is None:
        return "–"
    return f"{seconds * 1000:.1f} ms" if abs(seconds) < 1 else f"{seconds:.2f} s"


def share_text(share: float | None) -> str:
    """In percent."""
    return "–" if share is None else f"{share:.1%}"
