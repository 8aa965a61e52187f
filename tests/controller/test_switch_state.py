"""The changes that bring a switch from one state to another."""

from hypothesis import given
from hypothesis import strategies as st

from firedex_controller.rules import classification
from firedex_controller.switch_state import (
    Change,
    FlowEntry,
    FlowKey,
    MeterEntry,
    SwitchState,
    difference,
)
from tests.support.desired_examples import flow_rule, network


def state_of(flows: dict[int, tuple[int, float]], before: SwitchState) -> SwitchState:
    desired = network(
        *(
            flow_rule(flow=number, priority=priority, packets_per_second=rate)
            for number, (priority, rate) in flows.items()
        )
    )
    return classification(desired, desired.switches[0], before)


flows = st.dictionaries(
    st.integers(0, 20), st.tuples(st.integers(0, 7), st.sampled_from([100.0, 200.0])), max_size=12
)


def apply_change(change: Change, installed: SwitchState) -> SwitchState:
    """Apply a change step by step, with the checks of a switch."""
    meters: dict[int, MeterEntry] = dict(installed.meters)
    entries: dict[FlowKey, FlowEntry] = dict(installed.flows)
    for meter in change.meters_to_add:
        assert meter.id not in meters, "a switch refuses to add an existing meter"
        meters[meter.id] = meter
    for meter in change.meters_to_modify:
        assert meter.id in meters, "a switch refuses to modify a missing meter"
        meters[meter.id] = meter
    for flow in change.flows_to_set:
        assert flow.meter is None or flow.meter in meters, "a flow uses an unknown meter"
        entries[flow.key] = flow
    for flow in change.flows_to_delete:
        del entries[flow.key]
    for meter in change.meters_to_delete:
        del meters[meter.id]
        assert not [flow for flow in entries.values() if flow.meter == meter.id], (
            "deleting a meter deletes its flows"
        )
    return SwitchState(entries, meters)


@given(flows, flows)
def test_each_step_of_a_change_is_valid_and_leads_to_the_desired_state(
    before: dict[int, tuple[int, float]], after: dict[int, tuple[int, float]]
) -> None:
    installed = state_of(before, SwitchState())
    desired = state_of(after, installed)
    assert apply_change(difference(installed, desired), installed) == desired


@given(flows)
def test_equal_entries_are_not_changed(desired_flows: dict[int, tuple[int, float]]) -> None:
    installed = state_of(desired_flows, SwitchState())
    change = difference(installed, state_of(desired_flows, installed))
    assert not change
    assert change.flows_unchanged == len(installed.flows)


def test_new_configuration_version_alone_changes_nothing() -> None:
    older, newer = (network(flow_rule(), version=version) for version in (1, 2))
    first = classification(older, older.switches[0], SwitchState())
    assert not difference(first, classification(newer, newer.switches[0], first))


def test_only_the_flow_that_changes_class_is_overwritten() -> None:
    installed = state_of({0: (0, 100.0), 1: (1, 100.0)}, SwitchState())
    change = difference(
        installed, state_of({0: (0, 100.0), 1: (1, 100.0)} | {1: (4, 100.0)}, installed)
    )
    assert {flow.queue for flow in change.flows_to_overwrite} >= {4}
    assert not change.flows_to_add
    assert not change.flows_to_delete
    assert not change.meters_to_modify
