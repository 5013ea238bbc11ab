"""Words of the command line in those of Python."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping

_QUOTED = re.compile(r"`([^`\n]*)`")
# What stands in double quotes is of a file.
_NAME = r"(?<![\w\"-])--([a-z][a-z0-9-]*)"
_OPTION = re.compile(_NAME + r"(?: (FOLDER|\d+)\b)?")
_ARGUMENT = re.compile(_NAME + r"(?:=(\S+)|((?: (?!--)\S+)+))?")
_SETTING = re.compile(r"(?<![\w-])--set (?=\S)")
_SECTION = re.compile(r"--set (\w+)\.(\w+)=(\S+)")
# What is said of a setting names it.
_ORIGIN = re.compile(r"(?<![\w-])--set ([\w.]+)=.*?: (?=\1 = |unknown key `\1`)", re.DOTALL)
_ORIGIN_ASIDE = re.compile(r"([\w.]+) = (.*?) \(--set \1=\2\)")

# Lists and numbers, which Python writes alike.
_BARE = re.compile(r"\[.*\]|-?\d+(\.\d+)?")

# A command that lacks what a call here has.
_HERE = re.compile(r"no `[^`\n]*`: ([^;\n]*); in Python, (`[^`\n]*`)")

# Options whose argument has another name.
_OTHER_NAMES = {
    "allow-other-instruments": "other_instruments",
    "force": "changed_data",
    "json": "facts",
    "split": "part",
}
# Options without a value.
_FLAGS = {
    "absolute",
    "all",
    "allow-other-instruments",
    "cold",
    "demean",
    "fold-scaler",
    "force",
    "normalize-features",
    "positions",
    "resume",
    "self-loops",
    "stateless",
}
# Commands, and what does the same here.
_COMMANDS = {
    "compare": "mb.compare",
    "config": "help(mb.Settings)",
    "convert": "mb.convert",
    "doctor": "mb.doctor",
    "eval": "run.evaluate",
    "export": "run.export",
    "export --format onnx": 'run.export("model.onnx")',
    "graph build": "mb.graph.build",
    "graph inspect": "mb.graph.inspect",
    "import": "mb.import_weights",
    "ingest": "mb.ingest",
    "inspect": "mb.inspect",
    "leak": "mb.leak",
    "memory snapshot": "mb.memory.snapshot",
    "plan": "mb.plan",
    "predict": "run.predict",
    "predict --follow": "run.follow",
    "ticks": "mb.ticks_to_bars",
    "train": "mb.train",
}


def in_python(text: str) -> str:
    """A message of the program with arguments in place of options, and calls in place of commands between backticks:
    `--min-observations` is `min_observations`, and `megabatch train --out a --resume` is
    `mb.train(out="a", resume=True)`. Commands that Python has no call for stay."""
    text = text.replace("give --data FILE", "give a dataset")
    text = _HERE.sub(r"\2 needs \1", _ORIGIN_ASIDE.sub(r"\1 = \2", _ORIGIN.sub("", text)))
    parts = _QUOTED.split(text)
    for place, part in enumerate(parts):
        parts[place] = f"`{_quoted(part)}`" if place % 2 else _OPTION.sub(_option, _SETTING.sub("", part))
    return "".join(parts)


def with_arguments(text: str, arguments: Mapping[str, str]) -> str:
    """`text` with the arguments of a call in place of the settings that have their meaning: with `purge` for
    `data.purge`, `data.purge=8d` is `purge="8d"`."""
    # A setting may begin with the name of another.
    keys = "|".join(re.escape(key) for key in sorted(arguments, key=len, reverse=True))
    setting = re.compile(rf"(?<![\w./-])({keys})(?!\w)(?:=(\[[^\]]*\]|[\w.+-]*\w))?")

    def named(found: re.Match[str]) -> str:
        name, value = arguments[found[1]], found[2]
        if value is None:
            return name
        return f"{name}={value if _BARE.fullmatch(value) else _value(value)}"

    return setting.sub(named, text)


def _option(option: re.Match[str]) -> str:
    name, value = option[1], option[2]
    if value and value.isdigit():
        return f"{argument_name(name)}={value}"
    return argument_name(name) + ("=True" if name in _FLAGS else "")


def _quoted(part: str) -> str:
    """An option with its value as an argument, and a command as a call."""
    if part.startswith("--"):
        return _ARGUMENT.sub(_argument, _SETTING.sub("", _SECTION.sub(_section, part)))
    command = part.removeprefix("megabatch ")
    if command == part and " --" not in part:
        return part
    names = [name for name in _COMMANDS if f"{command} ".startswith(f"{name} ")]
    if not names:
        return part
    name = max(names, key=len)
    call, rest = _COMMANDS[name], command[len(name) :].strip()
    if not rest:
        return call
    words, dashes, options = f" {rest}".partition(" --")
    arguments = [_value(word) for word in words.split()]
    for option in _ARGUMENT.finditer(dashes + options):
        own = _argument(option)
        arguments.append(own if "=" in own else f"{own}=…")
    return f"{call}({', '.join(arguments)})"


def _argument(option: re.Match[str]) -> str:
    value = (option[2] or option[3] or "").strip()
    if value:
        return f"{argument_name(option[1])}={_value(value)}"
    return argument_name(option[1]) + ("=True" if option[1] in _FLAGS else "")


def _section(setting: re.Match[str]) -> str:
    return f'{setting[1]}={{"{setting[2]}": {_value(setting[3])}}}'


def argument_name(option: str) -> str:
    return _OTHER_NAMES.get(option, option.replace("-", "_"))


def _value(text: str) -> str:
    """A value as Python writes it; what stands for one stays."""
    if text == "…" or text.isdigit():
        return text
    return json.dumps(text.strip('"'), ensure_ascii=False)
