"""Which topics a filter matches, for many filters over many topics.

Topics are sorted level by level, so that everything below a level is one contiguous range: ``#``
costs a slice, ``+`` a walk over the children of its level, and a plain name one look-up.
"""

from collections.abc import Sequence
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

__all__ = ["TopicIndex"]

Node = tuple[dict[str, int], int, int]
"""Children by level name (positions in the list of nodes), and the range of topics below."""


class TopicIndex:
    """Answers, for the topics it was made of, which of them a filter matches."""

    def __init__(self, topics: Sequence[str]) -> None:
        self._topics = topics
        self._position = {name: index for index, name in enumerate(topics)}

    def matching_each(self, filters: Sequence[str]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """For many filters: how many topics each matches, and those topics one after another."""
        number: dict[str, int] = {}
        asked = np.array([number.setdefault(name, len(number)) for name in filters], dtype=np.int64)
        answers = [self.matching(name) for name in number]
        count = np.fromiter(map(len, answers), dtype=np.int64, count=len(answers))
        start = np.cumsum(count) - count
        together = np.concatenate([*answers, np.array([], dtype=np.int64)])
        count, start = count[asked], start[asked]
        within = np.arange(count.sum()) - np.repeat(np.cumsum(count) - count, count)
        return count, together[np.repeat(start, count) + within]

    def matching(self, filter_name: str) -> NDArray[np.int64]:
        """Positions of the topics that ``filter_name`` matches, ascending."""
        if "+" not in filter_name and "#" not in filter_name:
            position = self._position.get(filter_name)
            return np.array([] if position is None else [position], dtype=np.int64)
        order, levels, nodes = self._tree
        spans: list[tuple[int, int]] = []
        walk = [(0, 0)]
        wanted = filter_name.split("/")
        while walk:
            at, depth = walk.pop()
            children, start, stop = nodes[at]
            if depth == len(wanted):
                if start < stop and len(levels[start]) == depth:
                    spans.append((start, start + 1))
            elif wanted[depth] == "#":
                spans.append((start, stop))
            elif wanted[depth] == "+":
                walk.extend((child, depth + 1) for child in children.values())
            elif wanted[depth] in children:
                walk.append((children[wanted[depth]], depth + 1))
        found = [order[start:stop] for start, stop in spans]
        matched = np.sort(np.concatenate(found)) if found else np.array([], dtype=np.int64)
        if filter_name[0] in "+#":
            hidden = [self._topics[position].startswith("$") for position in matched]
            matched = matched[~np.array(hidden, dtype=bool)]
        return matched

    @cached_property
    def _tree(self) -> tuple[NDArray[np.int64], list[list[str]], list[Node]]:
        levels = [name.split("/") for name in self._topics]
        order = sorted(range(len(levels)), key=levels.__getitem__)
        levels = [levels[position] for position in order]
        nodes: list[Node] = [({}, 0, len(levels))]
        path = [0]
        for row, names in enumerate(levels):
            before = levels[row - 1] if row else []
            shared = 0
            while shared < min(len(before), len(names)) and before[shared] == names[shared]:
                shared += 1
            self._close(nodes, path, shared, row)
            for name in names[shared:]:
                nodes[path[-1]][0][name] = len(nodes)
                path.append(len(nodes))
                nodes.append(({}, row, row))
        self._close(nodes, path, 0, len(levels))
        return np.array(order, dtype=np.int64), levels, nodes

    @staticmethod
    def _close(nodes: list[Node], path: list[int], depth: int, row: int) -> None:
        """End the ranges of all nodes of ``path`` deeper than ``depth``."""
        while len(path) > depth + 1:
            node = path.pop()
            nodes[node] = (nodes[node][0], nodes[node][1], row)
