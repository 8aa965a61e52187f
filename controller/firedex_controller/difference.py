"""What must be sent to bring a switch from what is installed to what is desired, in order. Pure.

Meters first, since flows name them; stale meters last, since deleting a meter deletes its flows.
What is the same on both sides is not touched, so its counters and buckets go on.
"""

from dataclasses import dataclass

from firedex_controller.switch_entries import FlowEntry, MeterEntry, SwitchState

__all__ = ["Change", "difference"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """The steps, each a set of messages; a barrier belongs between the third and the fourth."""

    meters_to_add: tuple[MeterEntry, ...] = ()
    meters_to_modify: tuple[MeterEntry, ...] = ()
    flows_to_add: tuple[FlowEntry, ...] = ()
    flows_to_overwrite: tuple[FlowEntry, ...] = ()
    flows_to_delete: tuple[FlowEntry, ...] = ()
    meters_to_delete: tuple[MeterEntry, ...] = ()
    flows_unchanged: int = 0

    @property
    def flows_to_set(self) -> tuple[FlowEntry, ...]:
        """New ones and those that change: on a switch both are an addition."""
        return self.flows_to_add + self.flows_to_overwrite

    def __bool__(self) -> bool:
        return bool(
            self.meters_to_add
            or self.meters_to_modify
            or self.flows_to_set
            or self.flows_to_delete
            or self.meters_to_delete
        )


def difference(installed: SwitchState, desired: SwitchState) -> Change:
    """Compare entry by entry."""
    before, after = installed, desired
    return Change(
        meters_to_add=tuple(m for i, m in after.meters.items() if i not in before.meters),
        meters_to_modify=tuple(
            m for i, m in after.meters.items() if i in before.meters and before.meters[i] != m
        ),
        flows_to_add=tuple(f for key, f in after.flows.items() if key not in before.flows),
        flows_to_overwrite=tuple(
            f for key, f in after.flows.items() if key in before.flows and before.flows[key] != f
        ),
        flows_to_delete=tuple(f for key, f in before.flows.items() if key not in after.flows),
        meters_to_delete=tuple(m for i, m in before.meters.items() if i not in after.meters),
        flows_unchanged=sum(before.flows.get(key) == flow for key, flow in after.flows.items()),
    )
