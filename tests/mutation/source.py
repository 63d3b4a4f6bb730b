"""Functions with one expression of their source changed, everything else about them kept."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from types import CodeType, FunctionType
from typing import Any


@contextmanager
def with_code(function: FunctionType, code: CodeType) -> Iterator[None]:
    """A function that runs other code meanwhile."""
    before = function.__code__
    function.__code__ = code
    try:
        yield
    finally:
        function.__code__ = before


def with_text(function: FunctionType, old: str, new: str) -> CodeType:
    """The code of a function in which ``old``, found once, reads ``new``."""
    module = _module_text(function)
    lines, start = inspect.getsourcelines(function)
    text = "".join(lines)
    if text.count(old) != 1:
        raise ValueError(f"{function.__qualname__}: {old!r} is there {text.count(old)} times, not once")
    head = module.splitlines(keepends=True)[: start - 1]
    tail = module.splitlines(keepends=True)[start - 1 + len(lines) :]
    changed = "".join([*head, text.replace(old, new), *tail])
    found = [
        c for c in _codes(compile(changed, function.__code__.co_filename, "exec")) if _same_place(c, function)
    ]
    return found[0]


def edits(function: FunctionType) -> list[tuple[str, CodeType]]:
    """Every change of a sum, a sign or a factor in the function: what it is, and the code."""
    tree = _tree(function)
    index, around = _index(function), _enclosing(_node(function, tree))
    found = []
    for node, whole in around.items():
        for what, replacement in _changes(node):
            changed = _Replace(node, ast.fix_missing_locations(ast.copy_location(replacement, node)))
            code = _codes(compile(changed.visit(_copy(tree, node, changed)), _file(function), "exec"))[index]
            found.append((f"{what} in {ast.unparse(whole)}", code))
    return found


def _enclosing(function: ast.AST) -> dict[ast.expr, ast.expr]:
    """The expressions that may be changed, with what they are described by: signs by what is around them."""
    found: dict[ast.expr, ast.expr] = {}
    waiting: list[tuple[ast.AST, ast.AST]] = [(function, function)]
    while waiting:
        node, around = waiting.pop()
        if isinstance(node, ast.BinOp):
            found[node] = node
        elif isinstance(node, ast.UnaryOp):
            found[node] = around if isinstance(around, ast.expr) else node
        whole = node if isinstance(node, ast.BinOp | ast.Call | ast.Subscript) else around
        waiting += [(child, whole) for child in ast.iter_child_nodes(node)]
    return found


def _changes(node: ast.expr) -> list[tuple[str, ast.expr]]:
    """What may become of an expression. Terms left out are still evaluated: closures keep their cells."""
    if isinstance(node, ast.UnaryOp):
        return [("sign flipped", node.operand)] if isinstance(node.op, ast.USub) else []
    assert isinstance(node, ast.BinOp)
    if isinstance(node.op, ast.Add | ast.Sub):
        other = ast.Sub() if isinstance(node.op, ast.Add) else ast.Add()
        right = node.right if isinstance(node.op, ast.Add) else ast.UnaryOp(ast.USub(), node.right)
        return [
            ("sign flipped", ast.BinOp(node.left, other, node.right)),
            ("second term missing", _first(node.left, node.right)),
            ("first term missing", _first(right, node.left)),
        ]
    if isinstance(node.op, ast.Mult):
        return [
            ("second factor missing", _first(node.left, node.right)),
            ("first factor missing", _first(node.right, node.left)),
        ]
    return []


def _first(kept: ast.expr, left_out: ast.expr) -> ast.expr:
    return ast.Subscript(ast.Tuple([kept, left_out], ast.Load()), ast.Constant(0), ast.Load())


class _Replace(ast.NodeTransformer):
    def __init__(self, node: ast.expr, replacement: ast.expr) -> None:
        self.node, self.replacement = node, replacement

    def visit(self, node: ast.AST) -> Any:
        return self.replacement if node is self.node else self.generic_visit(node)


def _copy(tree: ast.Module, node: ast.expr, change: _Replace) -> ast.Module:
    """A tree that shares no node on the way to the changed one: the transformer writes into lists."""
    import copy

    memo: dict[int, Any] = {id(node): node}
    return copy.deepcopy(tree, memo)


@cache
def _parsed(file: str, text: str) -> ast.Module:
    return ast.parse(text, file)


def _module_text(function: FunctionType) -> str:
    module = inspect.getmodule(function)
    assert module is not None
    return inspect.getsource(module)


def _file(function: FunctionType) -> str:
    return function.__code__.co_filename


def _tree(function: FunctionType) -> ast.Module:
    return _parsed(_file(function), _module_text(function))


def _codes(code: CodeType) -> list[CodeType]:
    """All code objects within one, in the order of the source."""
    inner = [c for c in code.co_consts if isinstance(c, CodeType)]
    return [found for c in inner for found in (c, *_codes(c))]


@cache
def _compiled(file: str, text: str) -> list[CodeType]:
    return _codes(compile(text, file, "exec"))


def place(function: FunctionType) -> tuple[str, int]:
    """Where its source is; closures that one function made share it."""
    return _file(function), _index(function)


def returned(function: Callable[..., Any]) -> str:
    """The expression that a lambda, or a function of one statement, gives."""
    f = inspect.unwrap(function)
    assert isinstance(f, FunctionType)
    node = _node(f, _tree(f))
    body = node.body if isinstance(node, ast.Lambda) else getattr(node.body[-1], "value", None)  # type: ignore[attr-defined]
    return "" if body is None else ast.unparse(body)


def _index(function: FunctionType) -> int:
    """Which of its module's code objects is the function's."""
    place = list(function.__code__.co_positions())
    codes = _compiled(_file(function), _module_text(function))
    matching = [i for i, c in enumerate(codes) if list(c.co_positions()) == place]
    assert len(matching) == 1, (function, matching)
    return matching[0]


def _same_place(code: CodeType, function: FunctionType) -> bool:
    was = function.__code__
    return (code.co_qualname, code.co_firstlineno) == (was.co_qualname, was.co_firstlineno)


def _node(function: FunctionType, tree: ast.Module) -> ast.AST:
    """The definition or lambda that the function was made by."""
    code = function.__code__
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and node.name == code.co_name:
            first = min([node.lineno, *(d.lineno for d in node.decorator_list)])
            if first == code.co_firstlineno:
                return node
        if isinstance(node, ast.Lambda) and code.co_name == "<lambda>" and _holds(node, code):
            return node
    raise ValueError(f"the source of {function.__qualname__} was not found")


def _holds(node: ast.Lambda, code: CodeType) -> bool:
    """Whether the instructions lie in the lambda's body, from its first column to its last."""
    body = node.body
    places = [p for p in code.co_positions() if None not in p and p[3]]
    begin = min((p[0], p[2]) for p in places)
    end = max((p[1], p[3]) for p in places)
    return begin == (body.lineno, body.col_offset) and end == (body.end_lineno, body.end_col_offset)


def callees(function: Callable[..., Any], package: str) -> list[FunctionType]:
    """The function and those of the package that it calls, directly or not, which take ``F``."""
    waiting, found = [function], []
    while waiting:
        f = inspect.unwrap(waiting.pop())
        inside = isinstance(f, FunctionType) and f.__module__.startswith(package)
        if not inside or f in found or next(iter(inspect.signature(f).parameters), "") != "F":
            continue
        found.append(f)
        names = [n for c in (f.__code__, *_codes(f.__code__)) for n in c.co_names]
        cells = [c.cell_contents for c in f.__closure__ or ()]
        waiting += [f.__globals__[n] for n in names if callable(f.__globals__.get(n))]
        waiting += [c for c in cells if callable(c)]
    return found
