"""Words of the command line in those of Python."""

from __future__ import annotations

import re

_SETTING = re.compile(r"(?<![\w-])--set (?=\S)")
_OPTION = re.compile(r"(?<![\w-])--([a-z][a-z0-9-]*)")
# Options whose argument has another name, or needs a value.
_ARGUMENTS = {
    "allow-other-instruments": "other_instruments=True",
    "fold-scaler": "fold_scaler=True",
    "force": "changed_data=True",
    "resume": "resume=True",
    "split": "part",
    "stateless": "stateless=True",
}


def in_python(text: str) -> str:
    """A message of the program with arguments in place of options: `--min-observations` is `min_observations`. Commands
    of the program, which stand between backticks, stay."""
    parts = text.split("`")
    for place, part in enumerate(parts):
        if place % 2 == 0 or part.startswith("--"):
            parts[place] = _OPTION.sub(_argument, _SETTING.sub("", part))
    return "`".join(parts)


def _argument(option: re.Match[str]) -> str:
    return _ARGUMENTS.get(option[1], option[1].replace("-", "_"))
