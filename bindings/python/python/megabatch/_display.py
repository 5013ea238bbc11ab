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


class Progress(Protocol):
    """Work under way, as the native part tells it."""

    def begin_at(self, first: int) -> None: ...
    def at(self, done: int, message: str) -> None: ...
    def note(self, text: str) -> None: ...
    def end(self) -> None: ...


class Display(Protocol):
    """Interface that the native part calls."""

    def begin(self, label: str, total: int, unit: str) -> Progress: ...
    def note(self, text: str) -> None: ...


_IMPORTANT = ("note: ", "warning: ")
"""Beginnings of notes on settings and data, and of warnings."""


def log_note(text: str) -> None:
    """Notes on settings and data, and warnings, are warnings of the log."""
    level = logging.WARNING if text.startswith(_IMPORTANT) else logging.INFO
    log.log(level, "%s", in_python(text))


class _Log:
    """Remarks go to the log `megabatch`; notes on settings and data, and warnings, as warnings."""

    def begin(self, label: str, total: int, unit: str) -> Progress:
        return self

    def begin_at(self, first: int) -> None:
        pass

    def at(self, done: int, message: str) -> None:
        pass

    def note(self, text: str) -> None:
        log_note(text)

    def end(self) -> None:
        pass


class _Screen:
    """A place where the bar of the work under way is drawn again and again."""

    def begin(self, label: str, total: int, unit: str) -> Progress:
        return _Bar(self, label, total, unit)

    def note(self, text: str) -> None:
        raise NotImplementedError

    def remark(self, text: str, state: str) -> None:
        """A note on work under way, which stands at `state`."""
        self.note(text)

    def show(self, line: str) -> None:
        raise NotImplementedError


class _Bar:
    """Work with its own length and clock, which a validation amid training leaves as they are."""

    def __init__(self, screen: _Screen, label: str, total: int, unit: str) -> None:
        self._screen, self._label, self._total, self._unit, self._first = screen, label, total, unit, 0
        self._start = time.monotonic()
        self._state = ""

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
        self._state = f"{self._label} {done}/{self._total}  {message}".rstrip()
        self._screen.show(self._line(done, message))

    def note(self, text: str) -> None:
        self._screen.remark(text, self._state)

    def end(self) -> None:
        self._screen.show("")


class _Lines(_Screen):
    """Lines for what keeps all of them: one a remark on work under way, such as its validation, and one of its state at
    most every `seconds`; with `begins` the first at once."""

    def __init__(self, say: Callable[[str], None], seconds: float, begins: bool = False) -> None:
        self._say, self._seconds = say, seconds
        self._next = time.monotonic() + (0.0 if begins else seconds)

    def show(self, line: str) -> None:
        now = time.monotonic()
        if line and now >= self._next:
            self._next = now + self._seconds
            self._say(line)

    def note(self, text: str) -> None:
        log_note(text)

    def remark(self, text: str, state: str) -> None:
        if text.startswith(_IMPORTANT):
            log_note(text)
        else:
            self._say("; ".join(filter(None, [in_python(text), state])))


class _Terminal(_Screen):
    def show(self, line: str) -> None:
        width = shutil.get_terminal_size().columns
        sys.stderr.write("\r\x1b[K" + line[: width - 1])
        sys.stderr.flush()

    def note(self, text: str) -> None:
        sys.stderr.write("\r\x1b[K" + in_python(text) + "\n")


class _Notebook(_Screen):
    def __init__(self) -> None:
        self._handle: Any = None
        self._notes: list[str] = []
        self._last = ""

    def note(self, text: str) -> None:
        self._notes.append(in_python(text))
        self.show(self._last)

    def show(self, line: str) -> None:
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
    """The display of this program. Where there is neither a notebook nor a terminal, lines go to standard error; to the log
    `megabatch` where it takes the level INFO and `progress` is not stated."""
    if progress is not None:
        progress = flag(progress, "progress")
    if progress is False:
        return _Log()
    if _is_notebook():
        return _Notebook()
    if sys.stderr.isatty():
        return _Terminal()
    if progress:
        return _Lines(_print, 10.0, begins=True)
    return _Lines(_info if log.isEnabledFor(logging.INFO) and log.hasHandlers() else _print, 30.0)


def _print(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _info(line: str) -> None:
    log.info("%s", line)
