"""The tree of filters and the aggregation by covering, compared with the definition."""

import itertools

from hypothesis import given, settings
from hypothesis import strategies as st

from firedex.federation.interest import FilterTree, FilterUnion, RemoteInterest, covers, digest
from firedex.wire.mqtt_names import matches

LEVELS = st.sampled_from(["a", "b", "", "+"])
FILTERS = st.builds(
    lambda levels, rest: "/".join(levels) + rest,
    st.lists(LEVELS, min_size=1, max_size=3),
    st.sampled_from(["", "", "/#"]),
).filter(bool) | st.just("#")
TOPICS = [
    "/".join(levels)
    for length in (1, 2, 3, 4)
    for levels in itertools.product(["a", "b", "", "x"], repeat=length)
    if "/".join(levels)
]


@given(st.dictionaries(FILTERS, st.integers(0, 2), max_size=12), st.sampled_from(TOPICS))
def test_tree_finds_exactly_the_matching_filters(filters: dict[str, int], topic: str) -> None:
    tree: FilterTree[int] = FilterTree()
    for name, qos in filters.items():
        tree.set(name, qos)
    assert len(tree) == len(filters)
    expected = {name: qos for name, qos in filters.items() if matches(name, topic)}
    assert dict(tree.matching(topic)) == expected


@given(FILTERS, FILTERS)
def test_covering_filter_matches_all_topics_of_the_covered_one(one: str, other: str) -> None:
    """The converse holds except for `+/#`, which matches the same topics as `#`."""
    if covers(one, other):
        assert all(matches(one, topic) for topic in TOPICS if matches(other, topic))
    elif not one.startswith("+") or not one.endswith("#"):
        assert any(matches(other, topic) and not matches(one, topic) for topic in TOPICS)


@given(st.lists(FILTERS, max_size=10), FILTERS)
def test_tree_finds_exactly_the_covered_filters(names: list[str], name: str) -> None:
    tree: FilterTree[int] = FilterTree()
    for entry in names:
        tree.set(entry, 0)
    assert {found for found, _ in tree.covered_by(name)} == {n for n in names if covers(name, n)}


@given(st.lists(FILTERS, max_size=10))
def test_tree_is_empty_after_all_filters_are_removed(names: list[str]) -> None:
    tree: FilterTree[int] = FilterTree()
    for name in names:
        tree.set(name, 1)
    for name in names:
        tree.remove(name)
    assert len(tree) == 0
    assert not list(tree.items())
    assert not tree._root.children


CHANGES = st.lists(
    st.tuples(
        st.sampled_from(["gateway", "service"]),
        st.dictionaries(FILTERS, st.integers(0, 2), max_size=6),
    ),
    max_size=8,
)


@settings(max_examples=60)
@given(CHANGES)
def test_announced_filters_stand_for_all_wanted_ones(
    changes: list[tuple[str, dict[str, int]]],
) -> None:
    """A follower that applies the changes has, for each topic, the highest QoS of all sources."""
    union = FilterUnion()
    sources: dict[str, dict[str, int]] = {}
    follower: dict[str, int] = {}
    for source, filters in changes:
        sources[source] = filters
        change = union.set_source(source, filters)
        for name in change.withdraw:
            del follower[name]
        follower.update(change.announce)
        assert follower == union.announced
        for topic in TOPICS[::8]:
            wanted = [q for f in sources.values() for n, q in f.items() if matches(n, topic)]
            announced = [q for n, q in follower.items() if matches(n, topic)]
            assert max(wanted, default=None) == max(announced, default=None)
        for one, other in itertools.permutations(follower, 2):
            assert not (covers(one, other) and follower[one] >= follower[other])


def test_filters_of_system_topics_are_not_announced() -> None:
    assert not FilterUnion().set_source("gateway", {"$SYS/#": 0})


def test_destinations_follow_changes() -> None:
    remote = RemoteInterest()
    remote.replace("fire", {"smoke/#": 1})
    assert remote.destinations(b"smoke/1") == (("fire", 1),)
    remote.change("fire", {"smoke/1": 2}, ["smoke/#"])
    assert remote.destinations(b"smoke/1") == (("fire", 2),)
    assert remote.destinations(b"smoke/2") == ()
    remote.forget("fire")
    assert remote.destinations(b"smoke/1") == ()


def test_digest_does_not_depend_on_the_order() -> None:
    assert digest({"a": 1, "b": 2}) == digest({"b": 2, "a": 1}) != digest({"a": 1, "b": 1})
