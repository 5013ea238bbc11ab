"""The folder beside a series with the bars of its frames, as CSV: `own.bars` of `own.h5`.

A series names the files that it was made of, and reads them again. So bars of another frame are written beside those of
before, and these go once the series is another one.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import pathlib
from collections.abc import Iterable, Iterator, Mapping

from . import _frames, _megabatch
from .errors import ConfigError, DataError

_LIST = ".megabatch"
"""Names of the files that megabatch wrote, a line each. No others are ever removed."""


class BarsFolder:
    """Files of bars that belong to a series."""

    def __init__(self, series: pathlib.Path) -> None:
        self._series = series
        self._folder = series.parent / f"{series.stem}.bars"

    @contextlib.contextmanager
    def with_files(self, bars_by_name: Mapping[str, _frames.Bars]) -> Iterator[list[str]]:
        """The paths of the bars, in files of these names without their ending, written beside those of before. They go
        again if an error follows that leaves the series as it was."""
        before = _identity(self._series)
        own = self._listed()
        folder = self._new_folder(own)
        files = {folder / f"{name}.csv": bars for name, bars in bars_by_name.items()}
        names = [str(file.relative_to(self._folder)) for file in files]
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._list([*own, *names])
            for file, bars in files.items():
                file.parent.mkdir(exist_ok=True)
                _megabatch.write_bars(file, bars.native())
            yield [os.path.abspath(file) for file in files]
        except BaseException as error:
            if _identity(self._series) == before:
                self.keep_only(own)
            if isinstance(error, DataError):
                for (name, bars), file in zip(bars_by_name.items(), files):
                    bars.with_row(error, os.path.abspath(file), name=_frames.frame_name(name, len(files)))
            raise

    def files(self) -> list[str]:
        """Names of the files of bars in the folder."""
        return self._listed()

    def keep_only(self, names: Iterable[str]) -> None:
        """Removes our other files, and folders that are empty without them."""
        own, kept = self._listed(), list(names)
        for name in own:
            if name not in kept:
                file = self._folder / name
                file.unlink(missing_ok=True)
                for parent in file.relative_to(self._folder).parents:
                    if parent.name:
                        _remove_if_empty(self._folder / parent)
        self._list(kept)

    def _listed(self) -> list[str]:
        """Names of our files.

        Raises `ConfigError` for a folder that has others and none of ours: it is somebody else's.
        """
        try:
            return (self._folder / _LIST).read_text(encoding="utf-8").splitlines()
        except FileNotFoundError:
            if not self._folder.exists() or (self._folder.is_dir() and not any(self._folder.iterdir())):
                return []
        except NotADirectoryError:
            pass
        raise ConfigError(
            f"{self._folder}: this is the place of the bars of {self._series}, and what stands there was not made by "
            f"megabatch: move it, or name another series",
            key="out",
        )

    def _list(self, names: list[str]) -> None:
        """Makes `names` the names of our files."""
        place = self._folder / _LIST
        if not names:
            place.unlink(missing_ok=True)
            _remove_if_empty(self._folder)
            return
        beside = self._folder / f"{_LIST}.{os.getpid()}"
        beside.write_text("".join(f"{name}\n" for name in names), encoding="utf-8")
        os.replace(beside, place)

    def _new_folder(self, own: list[str]) -> pathlib.Path:
        """The folder itself, for the first bars of a series; else one in it that is not there."""
        if not own:
            return self._folder
        return next(new for n in itertools.count(2) if not (new := self._folder / str(n)).exists())


def _remove_if_empty(folder: pathlib.Path) -> None:
    with contextlib.suppress(OSError):
        folder.rmdir()


def _identity(file: pathlib.Path) -> tuple[int, ...] | None:
    try:
        found = file.stat()
    except FileNotFoundError:
        return None
    return found.st_dev, found.st_ino, found.st_mtime_ns, found.st_size
