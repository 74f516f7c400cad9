"""Find the text of a function, and prove that it is this function's.

Python does not keep the text of a function, only where it stood: on one line there may be several, and the file may have
changed. So a piece of text is believed only if it compiles to the very instructions that the function runs. Then it means
what the function does, on any version of Python. What is read so is a file of the program itself, and it decides only
whether columns are used.
"""

from __future__ import annotations
import __future__

import ast
import functools
import linecache
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from types import CodeType, FunctionType
from typing import Any

from penstock.topologies.expressions.tracing.meanings import Untraceable

Definition = ast.Lambda | ast.FunctionDef
_FUTURES = functools.reduce(
    int.__or__, (getattr(__future__, name).compiler_flag for name in __future__.all_feature_names)
)
_COMPARED = (
    "co_argcount",
    "co_posonlyargcount",
    "co_kwonlyargcount",
    "co_code",
    "co_names",
    "co_varnames",
    "co_freevars",
    "co_cellvars",
    "co_exceptiontable",
)


def definition_of(fn: FunctionType) -> Definition:
    """The function's definition. Raises ``Untraceable``."""
    code = fn.__code__
    lines = linecache.getlines(code.co_filename, fn.__globals__)
    if not lines:
        raise Untraceable("its source cannot be read")
    for node in _definitions("".join(lines)):
        if _first_line(node) == code.co_firstlineno and _compiles_to(node, code):
            return node
    raise Untraceable("its source is not what it was compiled from")


@functools.lru_cache(maxsize=8)
def _definitions(text: str) -> tuple[Definition, ...]:
    try:
        with _no_warnings():
            whole = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return ()
    return tuple(node for node in ast.walk(whole) if isinstance(node, (ast.Lambda, ast.FunctionDef)))


def _first_line(node: Definition) -> int:
    decorators = node.decorator_list if isinstance(node, ast.FunctionDef) else []
    return min([node.lineno, *(d.lineno for d in decorators)])


def _compiles_to(node: Definition, code: CodeType) -> bool:
    """Whether the definition compiles to this code, within a function that has its free variables."""
    arguments = _bare(node.args)
    inner: ast.stmt
    if isinstance(node, ast.Lambda):
        inner = ast.copy_location(ast.Return(ast.copy_location(ast.Lambda(arguments, node.body), node)), node)
    else:
        fields = {**dict(ast.iter_fields(node)), "args": arguments, "decorator_list": [], "returns": None}
        inner = ast.copy_location(ast.FunctionDef(**fields), node)
    outer = ast.parse(f"def outer({', '.join(code.co_freevars)}): pass").body[0]
    assert isinstance(outer, ast.FunctionDef)
    outer.body = [inner]
    flags, module = code.co_flags & _FUTURES, ast.Module([outer], [])
    try:
        with _no_warnings():
            made = compile(module, code.co_filename, "exec", flags=flags, dont_inherit=True)
    except (SyntaxError, ValueError, RecursionError):
        return False
    around = next(_codes(made))
    return bool(_shape(next(_codes(around))) == _shape(code))


def _bare(arguments: ast.arguments) -> ast.arguments:
    """The parameters without default values and annotations, which may hold functions other than the one defined."""

    def named(parameters: Iterable[ast.arg]) -> list[ast.arg]:
        return [ast.copy_location(ast.arg(p.arg, None), p) for p in parameters]

    def one(parameter: ast.arg | None) -> ast.arg | None:
        return None if parameter is None else named([parameter])[0]

    return ast.arguments(
        posonlyargs=named(arguments.posonlyargs),
        args=named(arguments.args),
        vararg=one(arguments.vararg),
        kwonlyargs=named(arguments.kwonlyargs),
        kw_defaults=[None if d is None else ast.copy_location(ast.Constant(None), d) for d in arguments.kw_defaults],
        kwarg=one(arguments.kwarg),
        defaults=[ast.copy_location(ast.Constant(None), d) for d in arguments.defaults],
    )


@contextmanager
def _no_warnings() -> Iterator[None]:
    """Say nothing that was said when the function was first compiled."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def _codes(code: CodeType) -> Iterator[CodeType]:
    return (c for c in code.co_consts if isinstance(c, CodeType))


def _shape(constant: Any) -> Any:
    """The constant such that 1, 1.0 and true differ, and zeros of both signs; of code what it does."""
    if isinstance(constant, CodeType):
        return tuple(getattr(constant, n) for n in _COMPARED), _shape(constant.co_consts)
    if isinstance(constant, tuple):
        return tuple(map(_shape, constant))
    if isinstance(constant, frozenset):
        return frozenset(map(_shape, constant))
    return type(constant), repr(constant)
