"""Interest in topics: a tree of filters, aggregation by covering, and the interest of other sites.

Pure. Filters are text with levels separated by ``/``. Filters for ``$`` topics are never announced.
"""

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Generic, TypeVar

__all__ = ["FilterTree", "FilterUnion", "InterestChange", "RemoteInterest", "covers", "digest"]

T = TypeVar("T")


@dataclass(slots=True)
class _Node(Generic[T]):
    children: dict[str, "_Node[T]"] = field(default_factory=dict)
    filter: str | None = None
    value: T | None = None


class FilterTree(Generic[T]):
    """Values by topic filter, found by topic or by covering filter."""

    def __init__(self) -> None:
        self._root: _Node[T] = _Node()
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def get(self, name: str) -> T | None:
        """Return the value of exactly this filter."""
        node: _Node[T] | None = self._root
        for level in name.split("/"):
            node = node.children.get(level) if node is not None else None
        return node.value if node is not None else None

    def set(self, name: str, value: T) -> None:
        """Set the value of a filter."""
        node = self._root
        for level in name.split("/"):
            node = node.children.setdefault(level, _Node())
        if node.filter is None:
            self._size += 1
        node.filter, node.value = name, value

    def remove(self, name: str) -> None:
        """Remove a filter and the branches that are empty then."""
        path = [self._root]
        levels = name.split("/")
        for level in levels:
            child = path[-1].children.get(level)
            if child is None:
                return
            path.append(child)
        if path[-1].filter is not None:
            self._size -= 1
        path[-1].filter = path[-1].value = None
        for node, level in zip(reversed(path[:-1]), reversed(levels), strict=True):
            child = node.children[level]
            if child.children or child.filter is not None:
                return
            del node.children[level]

    def items(self) -> Iterator[tuple[str, T]]:
        """Yield all filters and their values."""
        yield from self._below(self._root)

    def matching(self, topic: str) -> Iterator[tuple[str, T]]:
        """Yield the filters that match a topic."""
        if topic.startswith("$"):
            return
        levels = topic.split("/")
        stack = [(self._root, 0)]
        while stack:
            node, at = stack.pop()
            rest = node.children.get("#")
            if rest is not None and rest.filter is not None:
                yield rest.filter, rest.value  # type: ignore[misc]
            if at == len(levels):
                if node.filter is not None:
                    yield node.filter, node.value  # type: ignore[misc]
                continue
            for level in ("+", levels[at]):
                child = node.children.get(level)
                if child is not None:
                    stack.append((child, at + 1))

    def covering(self, name: str) -> Iterator[tuple[str, T]]:
        """Yield the filters that match every topic that ``name`` matches, ``name`` included."""
        levels = name.split("/")
        stack = [(self._root, 0)]
        while stack:
            node, at = stack.pop()
            rest = node.children.get("#")
            if rest is not None and rest.filter is not None:
                yield rest.filter, rest.value  # type: ignore[misc]
            if at == len(levels):
                if node.filter is not None:
                    yield node.filter, node.value  # type: ignore[misc]
                continue
            if levels[at] == "#":
                continue
            for level in {"+", levels[at]}:
                child = node.children.get(level)
                if child is not None:
                    stack.append((child, at + 1))

    def covered_by(self, name: str) -> Iterator[tuple[str, T]]:
        """Yield the filters that ``name`` covers, and ``name`` itself.

        A filter is covered if ``name`` matches every topic that it matches.
        """
        levels = name.split("/")
        stack = [(self._root, 0)]
        while stack:
            node, at = stack.pop()
            if at == len(levels):
                if node.filter is not None:
                    yield node.filter, node.value  # type: ignore[misc]
                continue
            level = levels[at]
            if level == "#":
                yield from self._below(node)
            elif level == "+":
                stack += [(child, at + 1) for key, child in node.children.items() if key != "#"]
            else:
                child = node.children.get(level)
                if child is not None:
                    stack.append((child, at + 1))

    def _below(self, node: _Node[T]) -> Iterator[tuple[str, T]]:
        stack = [node]
        while stack:
            here = stack.pop()
            if here.filter is not None:
                yield here.filter, here.value  # type: ignore[misc]
            stack += here.children.values()


def covers(one: str, other: str) -> bool:
    """Return whether filter ``one`` matches every topic that filter ``other`` matches."""
    tree: FilterTree[int] = FilterTree()
    tree.set(one, 0)
    return any(True for _ in tree.covering(other))


def digest(filters: Mapping[str, int]) -> str:
    """Return a short hash of a set of filters and their QoS, independent of their order."""
    made = hashlib.blake2b(digest_size=8)
    for name, qos in sorted(filters.items()):
        made.update(f"{name}\0{qos}\0".encode())
    return made.hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class InterestChange:
    """Filters to announce (with their QoS) and filters to withdraw."""

    announce: dict[str, int]
    withdraw: tuple[str, ...]

    def __bool__(self) -> bool:
        return bool(self.announce or self.withdraw)


class FilterUnion:
    """The filters of several sources, and the smaller set that covers all of them (``announced``).

    A filter is not in the smaller set while another one with at least its QoS covers it. Used for
    what a site announces (sources: gateway, service, file) and for what a federator subscribes to
    at its broker (sources: the other sites).
    """

    def __init__(self) -> None:
        self._sources: dict[str, dict[str, int]] = {}
        self._wanted: FilterTree[int] = FilterTree()
        self._announced: FilterTree[int] = FilterTree()
        self.announced: dict[str, int] = {}

    @property
    def wanted_count(self) -> int:
        """Number of different filters of all sources."""
        return len(self._wanted)

    def set_source(self, source: str, filters: Mapping[str, int]) -> InterestChange:
        """Replace the filters of one source; return the change of what is announced."""
        old = self._sources.get(source, {})
        new = {name: qos for name, qos in filters.items() if not name.startswith("$")}
        self._sources[source] = new
        touched = [name for name in {**old, **new} if old.get(name) != new.get(name)]
        return self._update(touched)

    def _update(self, touched: Iterable[str]) -> InterestChange:
        raised, lowered = self._update_wanted(touched)
        before = dict[str, int | None]()
        for name in lowered:
            if name in self.announced:
                self._withdraw(name, before)
                raised += [covered for covered, _ in self._wanted.covered_by(name)]
        for name in raised:
            qos = self._wanted.get(name)
            if qos is None or self._is_covered(name, qos):
                continue
            self._announce(name, qos, before)
            for covered, covered_qos in list(self._announced.covered_by(name)):
                if covered != name and covered_qos <= qos:
                    self._withdraw(covered, before)
        now = self.announced
        return InterestChange(
            announce={
                name: now[name] for name, old in before.items() if name in now and now[name] != old
            },
            withdraw=tuple(
                name for name, old in before.items() if old is not None and name not in now
            ),
        )

    def _update_wanted(self, touched: Iterable[str]) -> tuple[list[str], list[str]]:
        """Recompute the highest QoS that any source wants, for each filter in ``touched``.

        Returns two lists: filters that are new or whose QoS is not lower than before, and filters
        that no source wants any more or whose QoS is lower than before.
        """
        raised: list[str] = []
        lowered: list[str] = []
        for name in touched:
            wanted = [filters[name] for filters in self._sources.values() if name in filters]
            previous = self._wanted.get(name)
            if wanted:
                qos = max(wanted)
                self._wanted.set(name, qos)
                (lowered if previous is not None and qos < previous else raised).append(name)
            elif previous is not None:
                self._wanted.remove(name)
                lowered.append(name)
        return raised, lowered

    def _announce(self, name: str, qos: int, before: dict[str, int | None]) -> None:
        before.setdefault(name, self.announced.get(name))
        self.announced[name] = qos
        self._announced.set(name, qos)

    def _withdraw(self, name: str, before: dict[str, int | None]) -> None:
        before.setdefault(name, self.announced.get(name))
        del self.announced[name]
        self._announced.remove(name)

    def _is_covered(self, name: str, qos: int) -> bool:
        return (
            any(
                other_qos >= qos
                for other, other_qos in self._announced.covering(name)
                if other != name
            )
            or self._announced.get(name) == qos
        )


class RemoteInterest:
    """The announced interest of all other sites, and the destinations of a topic."""

    MAX_CACHED_TOPICS = 50_000

    def __init__(self) -> None:
        self.filters: dict[str, dict[str, int]] = {}
        self._tree: FilterTree[dict[str, int]] = FilterTree()
        self._cache: dict[bytes, tuple[tuple[str, int], ...]] = {}

    def replace(self, site: str, filters: Mapping[str, int]) -> list[str]:
        """Replace all filters of a site; return those that are new."""
        old = self.filters.get(site, {})
        gone = [name for name in old if name not in filters]
        changed = {name: qos for name, qos in filters.items() if old.get(name) != qos}
        self.change(site, changed, gone)
        return [name for name in changed if name not in old]

    def change(self, site: str, announce: Mapping[str, int], withdraw: Iterable[str]) -> None:
        """Apply a change of a site's interest."""
        filters = self.filters.setdefault(site, {})
        for name, qos in announce.items():
            filters[name] = qos
            sites = self._tree.get(name)
            if sites is None:
                sites = {}
                self._tree.set(name, sites)
            sites[site] = qos
        for name in withdraw:
            filters.pop(name, None)
            sites = self._tree.get(name)
            if sites is not None:
                sites.pop(site, None)
                if not sites:
                    self._tree.remove(name)
        self._cache.clear()

    def forget(self, site: str) -> None:
        """Remove all interest of a site."""
        self.change(site, {}, list(self.filters.get(site, ())))
        self.filters.pop(site, None)

    def destinations(self, topic: bytes) -> tuple[tuple[str, int], ...]:
        """Return the sites that want a topic, each with the highest QoS that it wants."""
        found = self._cache.get(topic)
        if found is None:
            if len(self._cache) >= self.MAX_CACHED_TOPICS:
                self._cache.clear()
            sites: dict[str, int] = {}
            for _, wanted in self._tree.matching(topic.decode(errors="replace")):
                for site, qos in wanted.items():
                    sites[site] = max(qos, sites.get(site, 0))
            found = self._cache[topic] = tuple(sorted(sites.items()))
        return found

    def all_filters(
        self, is_permitted: Callable[[str, str], bool] = lambda _s, _f: True
    ) -> dict[str, int]:
        """Return every filter that a permitted site wants, with the highest QoS."""
        result: dict[str, int] = {}
        for site, filters in self.filters.items():
            for name, qos in filters.items():
                if is_permitted(site, name):
                    result[name] = max(qos, result.get(name, 0))
        return result
