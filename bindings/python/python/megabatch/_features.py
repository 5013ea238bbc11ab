"""Names of features: built-in ones, and columns of frames."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence

from . import _megabatch
from .errors import ConfigError

_PREFIX = "column:"
_RULES = ("last", "first", "sum", "mean", "min", "max")


def named(
    features: Sequence[str] | str | None, columns: Mapping[str, str] | None, known: Sequence[str] | None
) -> list[str] | None:
    """The features as `ingest` takes them: a name of a column is `column:NAME:RULE`.

    `known` are the columns of the frame that have no role of their own; `None` for bars that are files.
    """
    rules = dict(columns or {})
    for name, rule in rules.items():
        if rule not in _RULES:
            raise ConfigError(f"columns: {name!r}: {rule!r}: expected {', '.join(_RULES)}", key="columns", found=rule)
    if features is None:
        _require_none(rules)
        return None
    names = features.split(",") if isinstance(features, str) else list(features)
    found = [_named(str(name).strip(), rules, known) for name in names]
    _require_none(rules)
    return found


def _named(name: str, rules: dict[str, str], known: Sequence[str] | None) -> str:
    computed = _megabatch.feature_names()
    is_column = known is not None and name in known
    if is_column and name in computed:
        raise ConfigError(
            f"features: {name!r} is a built-in feature, and a column of the frame: write 'column:{name}' for the column; for "
            f"the feature that is computed from prices, leave the column out of the frame or rename it",
            key="features",
            found=name,
        )
    if name.startswith(_PREFIX):
        own = _megabatch.feature_columns([name])
        if own and own[0] in rules:
            return f"{_PREFIX}{own[0]}:{rules.pop(own[0])}"
        return name
    if is_column:
        if any(character in name for character in ',"\r\n') or name != name.strip():
            raise ConfigError(
                f"features: the column {name!r} has a comma, a quote, a line's end or blanks around it in its name; rename it",
                key="features",
                found=name,
            )
        return f"{_PREFIX}{name}:{rules.pop(name, 'last')}"
    if known is not None and name not in computed:
        near = difflib.get_close_matches(name, [*known, *computed], n=3)
        raise ConfigError(
            f"features: {name!r} is no built-in feature and no column of the frame"
            f"{': did you mean ' + ' or '.join(map(repr, near)) + '?' if near else ''}; the frame's own columns are "
            f"{', '.join(known) or 'none'}",
            key="features",
            found=name,
        )
    return name


def _require_none(rules: Mapping[str, str]) -> None:
    if rules:
        name = next(iter(rules))
        raise ConfigError(
            f"columns: {name!r} is no column among the features; name it there, such as features=['default', {name!r}]",
            key="columns",
            found=name,
        )
