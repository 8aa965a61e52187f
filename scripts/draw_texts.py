"""Draw texts of the project at random, to be read by someone who has not seen the project.

Usage: .venv/bin/python scripts/draw_texts.py [--seed 1] [--count 60] [--group docs]

For each group (help, errors, api, alerts, docs, docstrings, names, tests) the script prints texts
with their place. The same seed draws the same texts from the same tree. ``docs/testing.md`` states
the results of the last drawings.
"""

import argparse
import ast
import random
import re
from collections.abc import Iterator
from pathlib import Path

import click

ROOT = Path(__file__).resolve().parent.parent
PRODUCT = ("firedex", "controller", "clients", "mininet_topos", "models", "spark")

Text = tuple[str, str]


def product_files() -> list[Path]:
    """Return the Python files of the product, sorted."""
    return sorted(path for folder in PRODUCT for path in (ROOT / folder).rglob("*.py"))


def _place(path: Path, line: int) -> str:
    return f"{path.relative_to(ROOT)}:{line}"


def _literal(node: ast.expr) -> str:
    """Return the text of a string or f-string, with {…} for what is filled in."""
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else ""
    if isinstance(node, ast.JoinedStr):
        return "".join(
            _literal(part) if isinstance(part, ast.Constant) else f"{{{ast.unparse(part.value)}}}"
            for part in node.values
            if isinstance(part, ast.Constant | ast.FormattedValue)
        )
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return _literal(node.left) + _literal(node.right)
    return ""


def help_texts() -> Iterator[Text]:
    """Yield the help of every command and option."""
    from firedex.cli import firedex

    def walk(command: click.Command, path: str) -> Iterator[Text]:
        if command.help:
            yield path, " ".join(command.help.split())
        for parameter in command.params:
            help_text = getattr(parameter, "help", None)
            if help_text:
                yield f"{path} {parameter.opts[0]}", help_text
        if isinstance(command, click.Group):
            context = click.Context(command)
            for name in command.list_commands(context):
                child = command.get_command(context, name)
                if child is not None:
                    yield from walk(child, f"{path} {name}")

    yield from walk(firedex, "firedex")


def error_texts() -> Iterator[Text]:
    """Yield the messages of raised exceptions and of log calls."""
    log_methods = {"debug", "info", "warning", "error", "exception", "critical"}
    for path in product_files():
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            call = node.exc if isinstance(node, ast.Raise) else node
            if not isinstance(call, ast.Call):
                continue
            is_log = isinstance(call.func, ast.Attribute) and call.func.attr in log_methods
            if isinstance(node, ast.Raise) or is_log:
                for argument in [*call.args, *(keyword.value for keyword in call.keywords)]:
                    text = _literal(argument)
                    if " " in text:
                        yield _place(path, call.lineno), text


def api_texts() -> Iterator[Text]:
    """Yield the summaries and descriptions of the OpenAPI document."""
    from firedex.service.web.app import ENDPOINTS
    from firedex.service.web.openapi import openapi_document

    def walk(value: object, path: str) -> Iterator[Text]:
        if isinstance(value, dict):
            for key, child in value.items():
                if key in {"description", "summary"} and isinstance(child, str):
                    yield f"{path}/{key}", child
                else:
                    yield from walk(child, f"{path}/{key}")
        elif isinstance(value, list):
            for index, child in enumerate(value):
                yield from walk(child, f"{path}/{index}")

    yield from walk(openapi_document(ENDPOINTS), "")


_SCRIPT_STRING = re.compile(r""""(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|`(?:[^`$]|\$\{[^{}]*\}|\$)*`""")
"""A string of JavaScript; a template string may contain others within ``${…}``."""


def alert_texts() -> Iterator[Text]:
    """Yield the sentences that the dashboard shows."""
    folder = ROOT / "firedex" / "dashboard"
    for path in sorted(folder.rglob("*.py")):
        tree = ast.parse(path.read_text("utf-8"))
        docstrings = {
            node.body[0].value
            for node in ast.walk(tree)
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef)
            and node.body
            and isinstance(node.body[0], ast.Expr)
        }
        inside = {
            child
            for node in ast.walk(tree)
            if isinstance(node, ast.JoinedStr)
            for child in ast.walk(node)
            if child is not node
        }
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant | ast.JoinedStr) and node not in docstrings | inside:
                text = _literal(node)
                code = r"[;{]\s*$|^\w+-\w+ \w+-\w+|^\w+-src |^<|\bparams\.|\w+\(\{"
                if text.count(" ") >= 2 and not re.search(code, text):
                    yield _place(path, node.lineno), text
    for path in sorted(folder.rglob("*.js")):
        for number, line in enumerate(path.read_text("utf-8").splitlines(), start=1):
            if line.strip().startswith(("//", "*", "/*")):
                continue
            for literal in _SCRIPT_STRING.findall(line):
                words = re.findall(r"[A-Za-z]{2,}", re.sub(r"\$\{[^{}]*\}", " ", literal))
                if len(words) >= 3 and literal.count(" ") >= 2:
                    yield _place(path, number), literal[1:-1]


def _without_code(text: str) -> str:
    """Return the text with its code blocks replaced by empty lines."""
    return re.sub(r"```.*?```", lambda match: "\n" * match[0].count("\n"), text, flags=re.S)


def documentation_texts() -> Iterator[Text]:
    """Yield the paragraphs, list entries and table rows of the documentation, without code."""
    pages = [*ROOT.glob("*.md"), *sorted((ROOT / "docs").rglob("*.md"))]
    for path in pages:
        if path.name in {"command-line.md", "api.md"}:  # generated from help texts and from the API
            continue
        text = _without_code(path.read_text("utf-8"))
        line = 1
        for block in re.split(r"(\n\s*\n|\n(?=\s*(?:[-*|]|\d+\.) ?))", text):
            words = " ".join(block.split())
            if len(words) > 25 and not set(words) <= set("|-: "):
                yield _place(path, line), words
            line += block.count("\n")


def docstrings() -> Iterator[Text]:
    """Yield the docstrings of the product."""
    for path in product_files():
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                text = ast.get_docstring(node)
                if text:
                    name = getattr(node, "name", path.stem)
                    yield f"{_place(path, getattr(node, 'lineno', 1))} {name}", text


def names() -> Iterator[Text]:
    """Yield the names of modules, classes, functions and fields of the product."""
    for path in product_files():
        if path.stem != "__init__":
            yield _place(path, 1), f"module {path.stem}"
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.ClassDef):
                yield _place(path, node.lineno), f"class {node.name}"
                for field in node.body:
                    if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name):
                        annotation = ast.unparse(field.annotation)
                        yield (
                            _place(path, field.lineno),
                            f"field {node.name}.{field.target.id}: {annotation}",
                        )
            elif isinstance(
                node, ast.FunctionDef | ast.AsyncFunctionDef
            ) and not node.name.startswith("__"):
                yield _place(path, node.lineno), f"function {node.name}({ast.unparse(node.args)})"


def test_names() -> Iterator[Text]:
    """Yield the names of tests, fixtures and helpers of the tests."""
    for path in sorted((ROOT / "tests").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                yield _place(path, node.lineno), node.name


GROUPS = {
    "help": help_texts,
    "errors": error_texts,
    "api": api_texts,
    "alerts": alert_texts,
    "docs": documentation_texts,
    "docstrings": docstrings,
    "names": names,
    "tests": test_names,
}


def main() -> None:
    """Print the drawn texts of each group."""
    parser = argparse.ArgumentParser(description="Draw texts of the project at random.")
    parser.add_argument("--seed", type=int, default=1, help="Seed of the random choice.")
    parser.add_argument("--count", type=int, default=60, help="Number of texts in each group.")
    parser.add_argument(
        "--group", choices=GROUPS, action="append", help="Group to draw from; may be repeated."
    )
    arguments = parser.parse_args()
    for group in arguments.group or GROUPS:
        texts = sorted(set(GROUPS[group]()))
        choice = random.Random(f"{arguments.seed} {group}")  # noqa: S311 - not for cryptography
        drawn = choice.sample(texts, min(arguments.count, len(texts)))
        print(f"\n== {group}: {len(drawn)} of {len(texts)}")
        for place, text in drawn:
            print(f"[{place}] {text}")


if __name__ == "__main__":
    main()
