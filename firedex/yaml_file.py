"""Values of the contract in YAML files: every mistake with its line.

Owns reading and the position of things in the file. What is right or wrong is ``firedex.wire``'s.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import yaml

from firedex.wire import InvalidValue, Problem, from_plain
from firedex.wire.errors import Path as DataPath
from firedex.wire.errors import format_path

__all__ = ["FileProblem", "InvalidFile", "UnreadableFile", "parse_yaml", "read_text"]

T = TypeVar("T")
# The pure-Python loader says the same, ten times slower.
_FastLoader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class Loader(_FastLoader):  # type: ignore[misc]  # which one is known at run time only
    """YAML as YAML 1.2 and JSON have it: ``1e-9`` and ``4.5e6`` are numbers, too."""


Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(r"^[-+]?([0-9]+(\.[0-9]*)?|\.[0-9]+)[eE][-+]?[0-9]+$"),
    list("-+.0123456789"),
)
DEEPEST = 32
MOST_REPEATS = 100_000
"""Nodes that may be repeated through YAML aliases."""


class UnreadableFile(Exception):
    """A file that is not there, or not text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FileProblem:
    """One thing wrong with a file."""

    line: int | None
    path: DataPath
    message: str

    def __str__(self) -> str:
        where = f"line {self.line}: " if self.line is not None else ""
        return f"{where}{format_path(self.path)}: {self.message}"


class InvalidFile(Exception):
    """A file with mistakes, all of them."""

    def __init__(self, source: str, problems: Sequence[FileProblem]) -> None:
        self.source = source
        self.problems = tuple(problems)
        count = len(problems)
        lines = "\n".join(f"  {problem}" for problem in problems)
        super().__init__(f"{source}: {count} problem{'s' if count > 1 else ''}\n{lines}")


def read_text(path: str) -> str:
    """All of a file; UnreadableFile says why not."""
    try:
        return Path(path).read_text("utf-8")
    except OSError as error:
        reason = error.strerror or str(error)
        raise UnreadableFile(f"cannot read {path!r}: {reason}") from error
    except UnicodeDecodeError as error:
        raise UnreadableFile(f"cannot read {path!r}: it is not UTF-8 text") from error


def parse_yaml(
    of: type[T],
    source: str,
    text: str,
    *,
    expected: str,
    check: Callable[[T], Sequence[Problem]] = lambda _: (),
) -> T:
    """A value of type ``of``; InvalidFile has every mistake, also those that ``check`` finds.

    ``expected`` describes a right file.
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
        for path, line, message in _walk(node, (), _Seen()):
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
        made = from_plain(of, data)
        problems += [_placed(problem, lines) for problem in check(made)]
    except InvalidValue as error:
        problems += [_placed(problem, lines) for problem in error.problems]
    if problems:
        raise InvalidFile(source, sorted(problems, key=lambda problem: problem.line or 0))
    return made


def _syntax_problem(error: Exception) -> FileProblem:
    mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
    said = getattr(error, "problem", None) or str(error).splitlines()[0]
    hint = " (is a filter with '#' without quotes?)" if "did not find expected" in said else ""
    return FileProblem(
        line=mark.line + 1 if mark else None,
        path=(),
        message=f"not valid YAML: {said}{hint}",
    )


def _check_depth(text: str) -> None:
    """Refuse what would overflow the stack of a parser that recurses."""
    depth = 0
    for event in yaml.parse(text, Loader=Loader):
        if isinstance(event, yaml.MappingStartEvent | yaml.SequenceStartEvent):
            depth += 1
        elif isinstance(event, yaml.MappingEndEvent | yaml.SequenceEndEvent):
            depth -= 1
        if depth > DEEPEST:
            raise yaml.MarkedYAMLError(
                problem=f"nested deeper than {DEEPEST} levels", problem_mark=event.start_mark
            )


class _Seen:
    """Counts the nodes that aliases repeat, which is how a small file becomes a huge one."""

    def __init__(self) -> None:
        self._nodes: set[int] = set()
        self._repeats = 0

    def note(self, node: Any) -> None:
        if id(node) in self._nodes:
            self._repeats += 1
        if self._repeats > MOST_REPEATS:
            raise yaml.MarkedYAMLError(
                problem="aliases repeat too much", problem_mark=node.start_mark
            )
        self._nodes.add(id(node))


def _walk(node: Any, path: DataPath, seen: _Seen) -> Iterator[tuple[DataPath, int, str | None]]:
    """Every path of a document with its line, and what YAML itself would let pass."""
    seen.note(node)
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


def _placed(problem: Problem, lines: dict[DataPath, int]) -> FileProblem:
    """The line of a problem, or of the nearest thing around it that is in the file."""
    path = problem.path
    while path not in lines and path:
        path = path[:-1]
    return FileProblem(line=lines.get(path), path=problem.path, message=problem.message)
