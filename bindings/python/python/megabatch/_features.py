"""Names of features and targets: built-in ones, and columns of frames."""

from __future__ import annotations

import dataclasses
import difflib
import reprlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Union

from . import _arguments, _megabatch
from .errors import ConfigError

_PREFIX = "column:"
# As `ColumnRule`, `TargetKind` and `BarrierUnit` of crates/bars/src/series.
_RULES = ("last", "first", "sum", "mean", "min", "max")
_TARGETS = ("cumulative", "increment", "log_return")
_UNITS = ("return", "pips", "atr")
_FEATURES_OF_PRICES = ("log_return", "body", "range")
_FEATURES_OF_ROLES = {"volume": ("log_volume", "relative_volume"), "spread": ("spread_pips",)}
"""Features that are computed from columns with a role."""


@dataclasses.dataclass(frozen=True)
class TripleBarrier:
    """A target, see `triple_barrier`."""

    up: float
    down: float
    horizon: int
    unit: str

    def __str__(self) -> str:
        return f"triple_barrier:{self.up!r}:{self.down!r}:{self.unit}"


def triple_barrier(up: float, down: float, horizon: int, *, unit: str = "return") -> TripleBarrier:
    """A target for `ingest`: the class 1 where the price rises by `up` from a sample's close first, -1 where it falls by
    `down` first, 0 where it does neither within `horizon` base bars (López de Prado, Advances in Financial Machine
    Learning, 2018, section 3.4, there by closes).

    A high reaches the upper price, a low the lower one; a bar that opens beyond one reaches that first. Where one bar
    reaches both, the target is not known (NaN). The label ends with the bar that decides it, and the purge of splits
    goes by that. `unit` is `"return"` (0.002 is 0.2 %), `"pips"` or `"atr"` (Wilder's mean of 14 bars).
    """
    for name, distance in (("up", up), ("down", down)):
        _arguments.require_number(distance, name)
    if unit not in _UNITS:
        raise ConfigError(f"triple_barrier: unit={unit!r}: expected {', '.join(_UNITS)}", key="unit", found=unit)
    for name, distance in (("up", up), ("down", down)):
        if not 0 < distance < float("inf"):
            raise ConfigError(f"triple_barrier: {name}={distance}: expected a number above 0", key=name, found=distance)
    if isinstance(horizon, str):
        raise _arguments.wrong(horizon, "horizon", f"a whole number of base bars; a unit is given by name, such as unit={unit!r}")
    bars = _arguments.whole_number(horizon, "horizon", 1, "a whole number of base bars")
    return TripleBarrier(float(up), float(down), bars, unit)


Target = Union[str, Sequence[str], TripleBarrier]


def listed(names: str) -> list[str]:
    """The names in one text, which has commas between them."""
    return [name.strip() for name in names.split(",")]


def named(
    features: Sequence[str] | None,
    columns: Mapping[str, str] | None,
    known: Sequence[str] | None,
    seen: Sequence[str] = (),
) -> tuple[list[str] | None, list[str]]:
    """The features as `ingest` takes them: a name of a column is `column:NAME:RULE`. Then, in the same form, those of
    the columns `seen` that are no features.

    `known` are the columns of the frame that have no role of their own; `None` for bars that are files.
    """
    is_mapping = columns is None or isinstance(columns, Mapping)
    _arguments.require(is_mapping, columns, "columns", 'rules by the names of columns, such as {"imbalance": "sum"}')
    rules = dict(columns or {})
    for name, rule in rules.items():
        if rule not in _RULES:
            raise ConfigError(f"columns: {name!r}: {rule!r}: expected {', '.join(_RULES)}", key="columns", found=rule)
    names = _texts("features", [] if features is None else features)
    found = [_named(name.strip(), rules, known) for name in names]
    own = _megabatch.feature_columns(found)
    others = [f"{_PREFIX}{name}:{rules.pop(name, 'last')}" for name in seen if name not in own]
    _require_none(rules)
    return None if features is None else found, others


def targets(target: Target | None, known: Sequence[str] | None) -> list[str] | None:
    """The targets as `ingest` takes them: a column is `column:NAME`."""
    if target is None:
        return None
    names = [str(target)] if isinstance(target, (str, TripleBarrier)) else _texts("target", target)
    return [_target(name.strip(), known) for name in names]


def _texts(key: str, names: Sequence[str]) -> list[str]:
    """Names of columns; their values are refused."""
    _arguments.require(isinstance(names, Iterable), names, key, "a name, a function, or a list of them")
    found = list(names)
    for name in found:
        if not isinstance(name, str):
            raise ConfigError(
                f"{key} is {_arguments.type_name(names)} with {reprlib.repr(name)} in it: expected names of columns; values are "
                f"columns of the frame",
                key=key,
            )
    return found


def _target(name: str, known: Sequence[str] | None) -> str:
    if known is None or name.startswith((_PREFIX, "triple_barrier:")):
        return name
    if name in _TARGETS:
        if name in known:
            raise _doubled("target", name)
        return name
    if name not in known:
        raise _unknown("target", name, known, _TARGETS)
    _check(name, "target")
    return f"{_PREFIX}{name}"


def own_column(role: str, name: str | None, known: Sequence[str] | None) -> str | None:
    """The column of `role`, `label_end` or `weight`, as `ingest` takes it."""
    _arguments.require_text(name, role, "the name of a column")
    if name is None or known is None or name.startswith(_PREFIX):
        return name
    if name not in known:
        raise _unknown(role, name, known, ())
    _check(name, role)
    return f"{_PREFIX}{name}"


def column_name(written: str | None) -> str | None:
    """The name in `column:NAME`."""
    return None if written is None else _column(written)


def _column(written: str) -> str:
    return written[len(_PREFIX) :]


def columns_of(features: Sequence[str], target: Sequence[str] | str | None) -> list[str]:
    """The columns that are features or targets, as they are called in frames."""
    names = listed(target) if isinstance(target, str) else list(target or [])
    return [*_megabatch.feature_columns(list(features)), *(_column(name) for name in names if name.startswith(_PREFIX))]


def strange(stated: Iterable[object], features: Sequence[str]) -> list[str]:
    """Names among the `stated` that are none of the features, in the forms that `ingest` takes: a column may stand without
    its rule, and without `column:`. A series names no rule where it is `last`."""
    columns = columns_of(features, None)
    by_last = (f"{own}:last" for own in features if own.startswith(_PREFIX))
    forms = ["default", "all", *features, *by_last, *columns, *(f"{_PREFIX}{name}" for name in columns)]
    known = {name.lower() for name in forms}
    return [str(own) for own in stated if str(own).strip().lower() not in known]


def _named(name: str, rules: dict[str, str], known: Sequence[str] | None) -> str:
    computed = _megabatch.feature_names()
    name = _in_other_case(name, [*(known or ()), *computed])
    is_column = known is not None and name in known
    if is_column and name in computed:
        raise _doubled("features", name)
    if name.startswith(_PREFIX):
        own = _megabatch.feature_columns([name])
        if own and own[0] in rules:
            return f"{_PREFIX}{own[0]}:{rules.pop(own[0])}"
        return name
    if is_column:
        _check(name, "features")
        return f"{_PREFIX}{name}:{rules.pop(name, 'last')}"
    if known is not None and name not in computed:
        raise _unknown("features", name, known, computed)
    return name


def _in_other_case(name: str, known: Sequence[str]) -> str:
    """The one of the `known` names that `name` is but for the case of letters; `name` itself where there is none."""
    found = [own for own in known if own.lower() == name.lower()]
    return found[0] if len(found) == 1 else name


def _doubled(key: str, name: str) -> ConfigError:
    return ConfigError(
        f"{key}: {name!r} is built in, and a column of the frame: write 'column:{name}' for the column; for what is computed "
        f"from prices, leave the column out of the frame or rename it",
        key=key,
        found=name,
    )


def _unknown(key: str, name: str, known: Sequence[str], computed: Sequence[str]) -> ConfigError:
    *_, numbers, _ = _megabatch.bar_columns([name])
    if key == "features" and numbers:
        role = numbers[0][0]
        near = " or ".join(map(repr, _FEATURES_OF_ROLES.get(role, _FEATURES_OF_PRICES)))
        return ConfigError(
            f"{key}: {name!r} is the {role} of the bars, and no feature by itself: did you mean {near}? For its values as they "
            f"are, add them under a name of their own, such as with frame.assign(level=frame[{name!r}])",
            key=key,
            found=name,
        )
    by_letters = {own.lower(): own for own in (*known, *computed)}
    near_names = [by_letters[own] for own in difflib.get_close_matches(name.lower(), by_letters, n=3)]
    meant = f": did you mean {' or '.join(map(repr, near_names))}?" if near_names else ""
    return ConfigError(
        f"{key}: {name!r} is not built in, and no column of the frame{meant}; the frame's own columns are "
        f"{', '.join(known) or 'none'}",
        key=key,
        found=name,
    )


def is_plain(name: str) -> bool:
    """True for a name that a list of names may have, and a header of a file."""
    return name == name.strip() and not any(character in name for character in ',"\r\n')


def _check(name: str, key: str) -> None:
    if not is_plain(name):
        raise ConfigError(
            f"{key}: the column {name!r} has a comma, a quote, a line's end or blanks around it in its name; rename it",
            key=key,
            found=name,
        )


def _require_none(rules: Mapping[str, str]) -> None:
    if rules:
        name = next(iter(rules))
        raise ConfigError(
            f"columns: {name!r} is no column among the features; name it there, such as features=['default', {name!r}]",
            key="columns",
            found=name,
        )
