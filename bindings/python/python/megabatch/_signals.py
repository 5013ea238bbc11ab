"""Signals that ask a program to end."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator

_ENDING = (signal.SIGTERM, signal.SIGHUP)


@contextlib.contextmanager
def exit_on_signals() -> Iterator[None]:
    """Has SIGTERM and SIGHUP raise `SystemExit` in the main thread, where they would kill the process. A SIGTERM after
    that does kill it. A signal that the program handles or ignores is left to it."""
    is_over = False
    late: list[int] = []

    def exit_now(number: int, frame: object) -> None:
        # An exception amid the lines below that restore would leave a handler behind.
        if is_over:
            late.append(number)
            return
        # A terminal that is closed may send SIGHUP twice.
        if signal.getsignal(signal.SIGTERM) is exit_now:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
        raise SystemExit(128 + number)

    # Python sets handlers in its main thread alone.
    is_main = threading.current_thread() is threading.main_thread()
    taken = [number for number in _ENDING if is_main and signal.getsignal(number) is signal.SIG_DFL]
    try:
        for number in taken:
            signal.signal(number, exit_now)
        yield
    finally:
        is_over = True
        for number in taken:
            if signal.getsignal(number) is exit_now:
                signal.signal(number, signal.SIG_DFL)
        if late:
            raise SystemExit(128 + late[0])
