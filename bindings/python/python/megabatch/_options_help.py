"""Options of a `TypedDict`: what is given of them to a call, and what `help` shows."""

from __future__ import annotations

import ast
import inspect
import sys
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

_F = TypeVar("_F", bound=Callable[..., Any])


def given(options: type, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The `options` among the arguments of a call, with those of other names, its `others`."""
    return {**{name: arguments[name] for name in options.__annotations__}, **arguments["others"]}


def shows(options: type) -> Callable[[_F], _F]:
    """Has `help`, `inspect.signature` and notebooks show `options` where a function takes them as `**`. None stands for
    one that is not given."""

    def shown(function: _F) -> _F:
        signature = inspect.signature(function)
        own = [one for one in signature.parameters.values() if one.kind is not one.VAR_KEYWORD]
        hints = {name: f"{hint.__forward_arg__} | None" for name, hint in options.__annotations__.items()}
        kind = inspect.Parameter.KEYWORD_ONLY
        listed = [inspect.Parameter(name, kind, default=None, annotation=hint) for name, hint in hints.items()]
        setattr(function, "__signature__", signature.replace(parameters=[*own, *listed]))
        return function

    return shown


def list_options(*kinds: type) -> None:
    """Adds the options of classes to their docstrings: name, type and the text below each in the source, as those of the
    settings have them. The classes are of one module, and come after their bases."""
    try:
        source = ast.parse(inspect.getsource(sys.modules[kinds[0].__module__]))
    except (OSError, SyntaxError):
        # An installation without sources has no texts.
        return
    listed: dict[str, str] = {}
    classes = {own.name: own for own in source.body if isinstance(own, ast.ClassDef)}
    for kind in kinds:
        own = classes[kind.__name__]
        inherited = [listed[base.id] for base in own.bases if isinstance(base, ast.Name) and base.id in listed]
        listed[own.name] = "".join([*inherited, *map(_option, own.body, own.body[1:])])
        kind.__doc__ = f"{inspect.cleandoc(kind.__doc__ or '')}\n\n{listed[own.name]}"


def _option(option: ast.stmt, text: ast.stmt) -> str:
    """An option with the text that stands after it; nothing for another statement."""
    if not isinstance(option, ast.AnnAssign) or not isinstance(text, ast.Expr) or not isinstance(text.value, ast.Constant):
        return ""
    lines = inspect.cleandoc(str(text.value.value)).splitlines()
    return "\n".join([f"{ast.unparse(option.target)}: {ast.unparse(option.annotation)}", *(f"    {line}" for line in lines), ""])
