"""Wire types in YAML files; every mistake is reported with its line.

This module finds the line of each value. ``firedex.wire`` defines what is valid.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar, cast

import yaml

from firedex.wire import InvalidValue, Problem, from_plain
from firedex.wire.errors import Path as DataPath
from firedex.wire.errors import format_path

__all__ = ["FileProblem", "InvalidFile", "UnreadableFile", "parse_yaml", "read_text"]

T = TypeVar("T")
# The pure-Python loader gives the same result, but is ten times slower.
_FastLoader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class Loader(_FastLoader):  # type: ignore[misc]  # the base class is chosen at run time
    """A YAML loader that reads ``1e-9`` and ``4.5e6`` as numbers, like YAML 1.2 and JSON."""


Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(r"^[-+]?([0-9]+(\.[0-9]*)?|\.[0-9]+)[eE][-+]?[0-9]+$"),
    list("-+.0123456789"),
)
MAX_DEPTH = 32
MAX_REPEATED_NODES = 100_000
"""Maximum number of nodes that YAML aliases may repeat."""


class UnreadableFile(Exception):
    """A file does not exist, cannot be read, or is not text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FileProblem:
    """One mistake in a file: its line, its path in the data, and a message."""

    line: int | None
    path: DataPath
    message: str

    def __str__(self) -> str:
        location = f"line {self.line}: " if self.line is not None else ""
        return f"{location}{format_path(self.path)}: {self.message}"


class InvalidFile(Exception):
    """A file is not valid; ``problems`` lists all mistakes."""

    def __init__(self, source: str, problems: Sequence[FileProblem]) -> None:
        self.source = source
        self.problems = tuple(problems)
        count = len(problems)
        lines = "\n".join(f"  {problem}" for problem in problems)
        super().__init__(f"{source}: {count} problem{'s' if count > 1 else ''}\n{lines}")


def read_text(path: str) -> str:
    """Return the content of a file; raise UnreadableFile if it cannot be read."""
    try:
        return Path(path).read_text("utf-8")
    except OSError as error:
        reason = error.strerror or str(error)
        raise UnreadableFile(f"cannot read {path!r}: {reason}") from error
    except UnicodeDecodeError as error:
        raise UnreadableFile(f"cannot read {path!r}: it is not UTF-8 text") from error


def parse_yaml(
    value_type: type[T],
    source: str,
    text: str,
    *,
    expected: str,
    check: Callable[[T], Sequence[Problem]] = lambda _: (),
) -> T:
    """Return a value of the given type; raise InvalidFile with all mistakes if it is not valid.

    ``check`` returns further problems of a valid value. ``expected`` is the error message for a
    file that is not a mapping.
    """
    try:
        _check_depth(text)
        node = yaml.compose(text, Loader=Loader)
    except (yaml.YAMLError, RecursionError) as error:
        raise InvalidFile(source, [_syntax_problem(error)]) from error
    if not isinstance(node, yaml.MappingNode):
        raise InvalidFile(source, [FileProblem(line=1, path=(), message=expected)])
    lines: dict[DataPath, int] = {}
    problems: list[FileProblem] = []
    try:
        for path, line, message in _walk(node, (), _AliasCounter()):
            lines[path] = line
            if message:
                problems.append(FileProblem(line=line, path=path, message=message))
        loader = Loader("")
        try:
            data = loader.construct_document(node)
        finally:
            loader.dispose()
    except (yaml.YAMLError, RecursionError, ValueError, LookupError, AttributeError) as error:
        raise InvalidFile(source, [_syntax_problem(error)]) from error
    try:
        result = from_plain(value_type, data)
        problems += [_with_line(problem, lines) for problem in check(result)]
    except InvalidValue as error:
        problems += [_with_line(problem, lines) for problem in error.problems]
    if problems:
        raise InvalidFile(source, sorted(problems, key=lambda problem: problem.line or 0))
    return result


def _syntax_problem(error: Exception) -> FileProblem:
    mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
    problem = getattr(error, "problem", None) or str(error).splitlines()[0]
    hint = " (is a filter with '#' without quotes?)" if "did not find expected" in problem else ""
    return FileProblem(
        line=mark.line + 1 if mark else None,
        path=(),
        message=f"not valid YAML: {problem}{hint}",
    )


def _check_depth(text: str) -> None:
    """Raise an error for nesting that would overflow the stack of the recursive parser."""
    depth = 0
    for event in yaml.parse(text, Loader=Loader):
        if isinstance(event, yaml.MappingStartEvent | yaml.SequenceStartEvent):
            depth += 1
        elif isinstance(event, yaml.MappingEndEvent | yaml.SequenceEndEvent):
            depth -= 1
        if depth > MAX_DEPTH:
            raise yaml.MarkedYAMLError(
                problem=f"nested deeper than {MAX_DEPTH} levels",
                problem_mark=cast("yaml.Mark", event.start_mark),
            )


class _AliasCounter:
    """Counts the nodes that aliases repeat: a small file could expand to a huge document."""

    def __init__(self) -> None:
        self._nodes: set[int] = set()
        self._repeats = 0

    def count(self, node: Any) -> None:
        if id(node) in self._nodes:
            self._repeats += 1
        if self._repeats > MAX_REPEATED_NODES:
            raise yaml.MarkedYAMLError(
                problem=f"aliases repeat more than {MAX_REPEATED_NODES} nodes",
                problem_mark=node.start_mark,
            )
        self._nodes.add(id(node))


def _walk(
    node: Any, path: DataPath, seen: _AliasCounter
) -> Iterator[tuple[DataPath, int, str | None]]:
    """Yield every path of a document with its line, and a message for duplicate keys."""
    seen.count(node)
    yield path, node.start_mark.line + 1, None
    if isinstance(node, yaml.MappingNode):
        keys: set[str] = set()
        for key, value in node.value:
            name = str(key.value)
            if name in keys:
                yield (*path, name), key.start_mark.line + 1, "is given twice"
                continue
            keys.add(name)
            yield from _walk(value, (*path, name), seen)
            yield (*path, name), key.start_mark.line + 1, None
    elif isinstance(node, yaml.SequenceNode):
        for index, value in enumerate(node.value):
            yield from _walk(value, (*path, index), seen)


def _with_line(problem: Problem, lines: dict[DataPath, int]) -> FileProblem:
    """Return a problem with its line, or with the line of the nearest enclosing value."""
    path = problem.path
    while path not in lines and path:
        path = path[:-1]
    return FileProblem(line=lines.get(path), path=problem.path, message=problem.message)
