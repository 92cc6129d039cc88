"""`_native.pyi` says what the module has: names, members, parameters and defaults."""

from __future__ import annotations

import ast
import inspect
from pathlib import Path

import brimful
from brimful import _native

STUB = ast.parse((Path(brimful.__file__).parent / "_native.pyi").read_text())


def public(names):
    return {name for name in names if not name.startswith("_")}


def parameters(function: ast.FunctionDef) -> list[tuple[str, str, bool]]:
    """Name, kind and whether there is a default, of each parameter."""
    arguments = function.args
    plain = [*arguments.posonlyargs, *arguments.args]
    first_default = len(plain) - len(arguments.defaults)
    rows = [(a.arg, "positional", n >= first_default) for n, a in enumerate(plain)]
    keywords = zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
    rows += [(a.arg, "keyword", default is not None) for a, default in keywords]
    return [row for row in rows if row[0] not in ("self", "cls")]


def actual(function) -> list[tuple[str, str, bool]]:
    kinds = {inspect.Parameter.KEYWORD_ONLY: "keyword"}
    rows = inspect.signature(function).parameters.values()
    return [
        (row.name, kinds.get(row.kind, "positional"), row.default is not inspect.Parameter.empty)
        for row in rows
        if row.name != "self"
    ]


def members(body, kind):
    return {node.name: node for node in body if isinstance(node, kind)}


def test_the_stub_names_everything_and_nothing_else():
    classes, functions = members(STUB.body, ast.ClassDef), members(STUB.body, ast.FunctionDef)
    constants = {node.target.id for node in STUB.body if isinstance(node, ast.AnnAssign)}
    assert public(classes) | public(functions) | public(constants) == public(vars(_native))


def test_functions_have_the_parameters_of_the_stub():
    for name, node in members(STUB.body, ast.FunctionDef).items():
        assert actual(getattr(_native, name)) == parameters(node), name


def test_classes_have_the_members_of_the_stub():
    for name, node in members(STUB.body, ast.ClassDef).items():
        cls = getattr(_native, name)
        stubbed = members(node.body, ast.FunctionDef)
        assert public(stubbed) == public(vars(cls)), name
        for method, function in stubbed.items():
            if any(getattr(decorator, "id", None) == "property" for decorator in function.decorator_list):
                assert not callable(vars(cls)[method]), method
            elif method == "__init__":
                assert actual(cls) == parameters(function), name
            elif method in vars(cls) and method not in ("__len__", "__iter__", "__next__"):
                assert actual(getattr(cls, method)) == parameters(function), f"{name}.{method}"
