"""Tables that notebooks show."""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence


def table(caption: str, header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A table with its caption above; numbers have four significant digits."""
    head = "".join(f"<th>{html.escape(name)}</th>" for name in header)
    body = "".join(f"<tr>{''.join(map(_cell, row))}</tr>" for row in rows)
    title = f'<caption style="caption-side: top; text-align: left">{html.escape(caption)}</caption>'
    return f"<table>{title}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _cell(value: object) -> str:
    if isinstance(value, float):
        return f'<td style="text-align: right">{"" if value != value else format(value, ".4g")}</td>'
    return f"<td>{html.escape(str(value))}</td>"
