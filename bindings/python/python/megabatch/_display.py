"""Progress in a terminal or a notebook, or as lines of a log or a file."""

from __future__ import annotations

import html
import logging
import shutil
import sys
import time
from collections.abc import Callable
from typing import Any, Protocol

from ._arguments import flag
from ._wording import in_python

log = logging.getLogger("megabatch")


class Display(Protocol):
    """Interface that the native part calls."""

    def begin(self, label: str, total: int, unit: str) -> Display: ...
    def begin_at(self, first: int) -> None: ...
    def at(self, done: int, message: str) -> None: ...
    def note(self, text: str) -> None: ...
    def end(self) -> None: ...


def log_note(text: str) -> None:
    """Notes on settings and data, and warnings, are warnings of the log."""
    level = logging.WARNING if text.startswith(("note: ", "warning: ")) else logging.INFO
    log.log(level, "%s", in_python(text))


class _Log:
    """Remarks go to the log `megabatch`; notes on settings and data, and warnings, as warnings."""

    def begin(self, label: str, total: int, unit: str) -> Display:
        return self

    def begin_at(self, first: int) -> None:
        pass

    def at(self, done: int, message: str) -> None:
        pass

    def note(self, text: str) -> None:
        log_note(text)

    def end(self) -> None:
        pass


class _Bar:
    """A bar that is drawn again and again."""

    def __init__(self) -> None:
        self._label, self._total, self._unit, self._first = "", 0, "", 0
        self._start = time.monotonic()

    def begin(self, label: str, total: int, unit: str) -> Display:
        self._label, self._total, self._unit, self._first = label, total, unit, 0
        self._start = time.monotonic()
        return self

    def begin_at(self, first: int) -> None:
        self._first = first

    def _line(self, done: int, message: str) -> str:
        share = done / self._total if self._total else 1.0
        filled = int(30 * min(share, 1.0))
        seconds = max(time.monotonic() - self._start, 1e-9)
        rate = (done - self._first) / seconds
        left = f"{(self._total - done) / rate:.0f} s left" if rate > 0 else ""
        bar = "=" * filled + " " * (30 - filled)
        line = f"{self._label} [{bar}] {done}/{self._total} {self._unit}  {rate:.1f}/s  {left}  {message}"
        return line.rstrip()

    def at(self, done: int, message: str) -> None:
        self._show(self._line(done, message))

    def note(self, text: str) -> None:
        log.info("%s", in_python(text))

    def end(self) -> None:
        self._show("")

    def _show(self, line: str) -> None:
        raise NotImplementedError


_SECONDS_A_LINE = 10.0


class _Lines(_Bar):
    """A line every ten seconds, for what keeps all of them; with `begins` the first at once."""

    def __init__(self, say: Callable[[str], None], begins: bool) -> None:
        super().__init__()
        self._say = say
        self._next = self._start if begins else self._start + _SECONDS_A_LINE

    def at(self, done: int, message: str) -> None:
        now = time.monotonic()
        if now >= self._next:
            self._next = now + _SECONDS_A_LINE
            self._say(self._line(done, message))

    def note(self, text: str) -> None:
        log_note(text)

    def end(self) -> None:
        pass


class _Terminal(_Bar):
    def _show(self, line: str) -> None:
        width = shutil.get_terminal_size().columns
        sys.stderr.write("\r\x1b[K" + line[: width - 1])
        sys.stderr.flush()

    def note(self, text: str) -> None:
        sys.stderr.write("\r\x1b[K" + in_python(text) + "\n")


class _Notebook(_Bar):
    def __init__(self) -> None:
        super().__init__()
        self._handle: Any = None
        self._notes: list[str] = []
        self._last = ""

    def note(self, text: str) -> None:
        self._notes.append(in_python(text))
        self._show(self._last)

    def _show(self, line: str) -> None:
        from IPython.display import HTML, display

        self._last = line
        text = "\n".join([*self._notes, *([line] if line else [])])
        if not text and self._handle is None:
            return
        shown = HTML(f"<pre>{html.escape(text)}</pre>" if text else "")
        if self._handle is None:
            self._handle = display(shown, display_id=True)
        else:
            self._handle.update(shown)


def _is_notebook() -> bool:
    if "IPython" not in sys.modules:
        return False
    shell = sys.modules["IPython"].get_ipython()
    return shell is not None and hasattr(shell, "kernel")


def display(progress: bool | None) -> Display:
    """The display of this program. Where there is neither a notebook nor a terminal, lines go to the log `megabatch`, and with
    `True` to the standard error."""
    if progress is not None:
        progress = flag(progress, "progress")
    if progress is False:
        return _Log()
    if _is_notebook():
        return _Notebook()
    if sys.stderr.isatty():
        return _Terminal()
    return _Lines(_print, begins=True) if progress else _Lines(_info, begins=False)


def _print(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _info(line: str) -> None:
    log.info("%s", line)
