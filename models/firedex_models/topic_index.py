"""Fast matching of many topic filters against many topics.

Topics are sorted level by level, so that everything below a level is one contiguous range: ``#``
is a slice, ``+`` visits all children of its level, and a plain name is one lookup.
"""

from collections.abc import Sequence
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

__all__ = ["TopicIndex"]

Node = tuple[dict[str, int], int, int]
"""The children by level name (positions in the list of nodes), and the range of topics below."""


class TopicIndex:
    """Finds the topics that a filter matches."""

    def __init__(self, topics: Sequence[str]) -> None:
        self._topics = topics
        self._position = {name: index for index, name in enumerate(topics)}

    def matching_each(self, filters: Sequence[str]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the number of topics that each filter matches, and the concatenated topics."""
        number: dict[str, int] = {}
        filter_numbers = np.array(
            [number.setdefault(name, len(number)) for name in filters], dtype=np.int64
        )
        results = [self.matching(name) for name in number]
        count = np.fromiter(map(len, results), dtype=np.int64, count=len(results))
        start = np.cumsum(count) - count
        all_topics = np.concatenate([*results, np.array([], dtype=np.int64)])
        count, start = count[filter_numbers], start[filter_numbers]
        offset = np.arange(count.sum()) - np.repeat(np.cumsum(count) - count, count)
        return count, all_topics[np.repeat(start, count) + offset]

    def matching(self, filter_name: str) -> NDArray[np.int64]:
        """Return the positions of the topics that ``filter_name`` matches, ascending."""
        if "+" not in filter_name and "#" not in filter_name:
            position = self._position.get(filter_name)
            return np.array([] if position is None else [position], dtype=np.int64)
        order, levels, nodes = self._tree
        spans: list[tuple[int, int]] = []
        pending = [(0, 0)]
        filter_levels = filter_name.split("/")
        while pending:
            node, depth = pending.pop()
            children, start, stop = nodes[node]
            if depth == len(filter_levels):
                if start < stop and len(levels[start]) == depth:
                    spans.append((start, start + 1))
            elif filter_levels[depth] == "#":
                spans.append((start, stop))
            elif filter_levels[depth] == "+":
                pending.extend((child, depth + 1) for child in children.values())
            elif filter_levels[depth] in children:
                pending.append((children[filter_levels[depth]], depth + 1))
        parts = [order[start:stop] for start, stop in spans]
        matched = np.sort(np.concatenate(parts)) if parts else np.array([], dtype=np.int64)
        if filter_name[0] in "+#":
            is_system_topic = [self._topics[position].startswith("$") for position in matched]
            matched = matched[~np.array(is_system_topic, dtype=bool)]
        return matched

    @cached_property
    def _tree(self) -> tuple[NDArray[np.int64], list[list[str]], list[Node]]:
        levels = [name.split("/") for name in self._topics]
        order = sorted(range(len(levels)), key=levels.__getitem__)
        levels = [levels[position] for position in order]
        nodes: list[Node] = [({}, 0, len(levels))]
        path = [0]
        for row, names in enumerate(levels):
            previous = levels[row - 1] if row else []
            shared = 0
            while shared < min(len(previous), len(names)) and previous[shared] == names[shared]:
                shared += 1
            self._close_nodes(nodes, path, shared, row)
            for name in names[shared:]:
                nodes[path[-1]][0][name] = len(nodes)
                path.append(len(nodes))
                nodes.append(({}, row, row))
        self._close_nodes(nodes, path, 0, len(levels))
        return np.array(order, dtype=np.int64), levels, nodes

    @staticmethod
    def _close_nodes(nodes: list[Node], path: list[int], depth: int, row: int) -> None:
        """End the ranges of all nodes of ``path`` deeper than ``depth``."""
        while len(path) > depth + 1:
            node = path.pop()
            nodes[node] = (nodes[node][0], nodes[node][1], row)
