"""Ready settings for the frameworks people train with, and their present settings read back.

Each framework is one module in this folder, found by being there: it has `NAME`, `TITLE`, `FILENAME`,
`emit(settings, lang)`, and where its file can be read back also `detect(text, filename)` and
`read(text, filename)`. A module whose files are also files of another framework (TRL's settings are
transformers' and more) names it in `EXTENDS`.
"""

from __future__ import annotations

import importlib
import os
import pkgutil
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from batchfit.errors import BadInput
from batchfit.frameworks._reading import MAX_CHARACTERS, checked_length, file_format, load
from batchfit.frameworks._writing import Emitted, Note
from batchfit.languages import SOURCE
from batchfit.settings import TrainingSettings

__all__ = ["Emitted", "Framework", "Note", "emit", "framework", "names", "read_settings"]


@dataclass(frozen=True)
class Framework:
    """One framework. `detect` and `read` are None where its file is a program and cannot be read back."""

    name: str
    title: str
    filename: str
    emit: Callable[[TrainingSettings, str], Emitted]
    read: Callable[[str, str], TrainingSettings] | None
    detect: Callable[[str, str], bool] | None
    extends: str | None


@cache
def _all() -> dict[str, Framework]:
    found = {}
    for entry in pkgutil.iter_modules(__path__):
        if not entry.name.startswith("_"):
            module = importlib.import_module(f"{__name__}.{entry.name}")
            found[module.NAME] = Framework(
                module.NAME,
                module.TITLE,
                module.FILENAME,
                module.emit,
                getattr(module, "read", None),
                getattr(module, "detect", None),
                getattr(module, "EXTENDS", None),
            )
    return dict(sorted(found.items()))


def names() -> tuple[str, ...]:
    """The names `emit` knows, in order: "accelerate", "axolotl", ..."""
    return tuple(_all())


def framework(name: str) -> Framework:
    """The framework of that name. Raises BadInput on `framework`, with the names there are."""
    found = _all().get(name.lower())
    if found is None:
        raise BadInput(
            "framework",
            "must be one of {allowed}; you gave {value}",
            allowed=", ".join(names()),
            value=repr(name),
        )
    return found


def emit(name: str, settings: TrainingSettings, lang: str = SOURCE) -> Emitted:
    """The settings as a ready file of that framework, its comments in a language, with what it cannot be told as notes.

    Raises BadInput on `framework` for a name not known, and on the field that is missing: every file needs
    the micro-batch and the steps, and those that state the whole batch need the replicas.
    """
    return framework(name).emit(settings, lang)


def read_settings(
    source: str | os.PathLike[str], *, name: str | None = None, filename: str = ""
) -> tuple[str, TrainingSettings]:
    """Which framework a configuration is of, and its settings.

    `source` is a path, or the text itself (anything of more than one line); `name` says the framework where
    the person knows it, and `filename` gives a text the name it had. Raises BadInput on `file` where there
    is no such file or no framework's settings are in it, and on the key whose value cannot be used.
    """
    text, filename = _text_of(source, filename)
    checked_length(text)
    reader = framework(name) if name else _recognized(text, filename)
    if reader.read is None:
        raise BadInput("framework", "{title} cannot be read back: it is a program", title=reader.title)
    return reader.name, reader.read(text, filename)


def _text_of(source: str | os.PathLike[str], filename: str) -> tuple[str, str]:
    if isinstance(source, str) and ("\n" in source or source.lstrip().startswith("{")):
        return source, filename
    path = Path(source)
    try:
        if path.stat().st_size > 4 * MAX_CHARACTERS:
            raise BadInput("file", "must be a configuration file; {path} is far too large", path=str(path))
        return path.read_text(encoding="utf-8"), filename or path.name
    except UnicodeDecodeError:
        raise BadInput("file", "must be text in UTF-8; {path} is not", path=str(path)) from None
    except (OSError, ValueError) as problem:  # ValueError: a path with a null character in it
        why = getattr(problem, "strerror", None) or str(problem)
        raise BadInput("file", "cannot be read: {path}: {why}", path=str(path), why=why) from None


def _recognized(text: str, filename: str) -> Framework:
    """The one framework whose file it is. Where it could be several, the one that extends another wins."""
    fitting = [each for each in _all().values() if each.detect and each.detect(text, filename)]
    extended = {each.extends for each in fitting}
    fitting = [each for each in fitting if each.name not in extended]
    if len(fitting) == 1:
        return fitting[0]
    if fitting:
        raise BadInput(
            "file",
            "could be settings of {names}: say which",
            names=" or ".join(each.name for each in fitting),
        )
    if file_format(text, filename) in ("json", "yaml", "toml"):
        load(text, filename)  # a file that cannot be parsed has an error of its own
    readable = ", ".join(each.name for each in _all().values() if each.read)
    raise BadInput("file", "must hold settings of one of {names}; none was recognized", names=readable)
