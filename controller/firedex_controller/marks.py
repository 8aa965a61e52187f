"""The mark (DSCP) by which a class is recognised at a port."""

__all__ = ["CLASSES", "dscp_of_class"]

CLASSES = 64
EXPEDITED_FORWARDING = 46


def dscp_of_class(priority: int) -> int:
    """A mark of its own for each of 64 classes: 46 down to 1, then 47 to 63, then 0."""
    if not 0 <= priority < CLASSES:
        raise ValueError(f"class {priority} is not between 0 and {CLASSES - 1}")
    if priority < EXPEDITED_FORWARDING:
        return EXPEDITED_FORWARDING - priority
    return (priority + 1) % CLASSES
