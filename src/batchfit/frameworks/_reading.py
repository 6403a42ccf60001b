"""A configuration file as data: parsed by its format, and read key by key with errors that name the key."""

from __future__ import annotations

import ast
import importlib
import json
import re
import reprlib
import tomllib
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from pathlib import PurePath
from typing import Any

from batchfit.errors import BadInput
from batchfit.settings import TrainingSettings

#: Configuration files are a few kilobytes. A limit keeps a page that reads them from being kept busy.
MAX_CHARACTERS = 1_000_000

#: No batch, sequence or cluster has more; a larger number is a slip, or mischief.
MAX_COUNT = 10**15

_FORMATS = {
    ".json": "json",
    ".yaml": "yaml",
    ".yml": "yaml",
    ".toml": "toml",
    ".py": "python",
    ".sh": "shell",
}

#: Words that leave a value to something outside the file: the launcher, or the trainer's own arguments.
UNSAID = (None, "auto")


def file_format(text: str, filename: str = "") -> str:
    """ "json", "yaml", "toml", "python" or "shell": by the file's name, else by what the text looks like.

    The patterns hold to one line each and to one way of matching it, so that no text takes long.
    """
    if known := _FORMATS.get(PurePath(filename).suffix.lower()):
        return known
    text = re.sub(r"^[ \t]*#(?!!).*", "", text, flags=re.M)  # comments may quote a command of any kind
    if text.lstrip().startswith("{"):
        return "json"
    if re.search(r"^[ \t]*\[[\w.]+\][ \t]*(#.*)?$", text, re.M) and re.search(
        r"^[ \t]*[\w.]+[ \t]*=", text, re.M
    ):
        return "toml"
    if text.startswith("#!") or re.search(r"(^|\s)--[a-z][\w-]", text):
        return "shell"
    if re.search(r"^(import|from|def) \w|\w\($", text, re.M):
        return "python"
    return "yaml"


def checked_length(text: str) -> str:
    """The text itself. Raises BadInput on `file` where it is too long."""
    if len(text) > MAX_CHARACTERS:
        raise BadInput(
            "file",
            "must be at most {limit} characters; it has {length}",
            limit=MAX_CHARACTERS,
            length=len(text),
        )
    return text


def load(text: str, filename: str = "") -> Mapping[str, Any]:
    """The mapping that JSON, YAML or TOML text holds.

    Raises BadInput on `file` where the text is too long, cannot be parsed, or is not a mapping.
    """
    kind = file_format(checked_length(text), filename)
    if kind not in ("json", "yaml", "toml"):
        raise BadInput("file", "must be JSON, YAML or TOML; it looks like {kind}", kind=kind)
    data, problem = _parse(text, kind)
    if problem:
        raise BadInput("file", "is not valid {kind}: {problem}", kind=kind.upper(), problem=problem)
    if not isinstance(data, dict):
        raise BadInput("file", "must hold keys and values; it holds {value}", value=shown(data))
    return data


@lru_cache(maxsize=4)
def _parse(text: str, kind: str) -> tuple[Any, str]:
    """What the text holds, or what is wrong with it.

    Every framework looks at the same text in turn, so the last few are kept, the broken ones too.
    """
    try:
        return _parser(kind)(text), ""
    except Exception as problem:  # each parser has its own family of errors, and PyYAML leaks several more
        return None, _first_line(problem)


def _parser(kind: str) -> Callable[[str], Any]:
    if kind == "json":
        return json.loads
    if kind == "toml":
        return tomllib.loads
    # Imported here: only a person who gives a YAML file pays for it. PyYAML, because the frameworks read
    # their files with it: what it takes for a number or a flag is what they take for one.
    load_yaml: Callable[[str], Any] = importlib.import_module("yaml").safe_load
    return load_yaml


def _first_line(problem: Exception) -> str:
    if isinstance(problem, RecursionError):
        return "it is nested too deeply"
    mark = getattr(problem, "problem_mark", None)
    where = f" (line {mark.line + 1})" if mark else ""
    words = getattr(problem, "problem", None) or str(problem) or type(problem).__name__
    return words.splitlines()[0] + where


def keys_of(text: str, filename: str = "") -> frozenset[str]:
    """The top-level keys of a file, or none at all where it is not a readable mapping."""
    try:
        return frozenset(str(key) for key in load(text, filename))
    except BadInput:
        return frozenset()


def shown(value: object) -> str:
    """A value as it is restated in an error, cut where it is long.

    A YAML file of a few lines can hold aliases of aliases that would print without end: reprlib stops.
    """
    try:
        text = reprlib.repr(value)
    except ValueError:  # whole numbers of thousands of digits have no text
        text = f"a {type(value).__name__} of great size"
    return text if len(text) <= 60 else f"{text[:57]}..."


class Section:
    """A mapping within a file. It reads its keys as typed values and knows its own path, for errors.

    A key that is missing, null or "auto" reads as the default. A whole value of the form `${a.b}` is
    looked up in the file, as OmegaConf does; one that leads outside the file counts as not said.
    """

    def __init__(
        self, data: Mapping[str, Any], path: str = "", root: Mapping[str, Any] | None = None
    ) -> None:
        self._data = data
        self._path = path
        self._root = data if root is None else root

    def __contains__(self, key: str) -> bool:
        return key in self._data

    def names(self) -> list[str]:
        """The keys that are texts."""
        return [key for key in self._data if isinstance(key, str)]

    def name(self, key: str) -> str:
        """The key's full path in the file: "zero_optimization.stage"."""
        return f"{self._path}.{key}" if self._path else key

    def value(self, key: str) -> Any:
        """The value as it stands, with a reference followed."""
        value = self._data.get(key)
        for _ in range(10):  # references may lead to references, and in circles
            reference = re.fullmatch(r"\$\{([\w.]+)\}", value) if isinstance(value, str) else None
            if not reference:
                return None if isinstance(value, str) and value.startswith("${") else value
            value = self._root
            for part in reference[1].split("."):
                value = value.get(part) if isinstance(value, Mapping) else None
        return None

    def bad(self, key: str, allowed: str) -> BadInput:
        """The error for a value that is not one of those allowed."""
        return BadInput(
            self.name(key),
            "must be {allowed}; the file says {value}",
            allowed=allowed,
            value=shown(self.value(key)),
        )

    def section(self, key: str) -> Section:
        """The mapping under a key; an empty one where the key is missing or null."""
        value = self.value(key)
        if value is None:
            value = {}
        if not isinstance(value, Mapping):
            raise self.bad(key, "a section of keys and values")
        return Section(value, self.name(key), self._root)

    def sections(self, key: str) -> bool:
        """Whether the key holds a mapping (and not, say, the path of another file)."""
        return isinstance(self.value(key), Mapping)

    def count(self, key: str, default: int | None = None) -> int | None:
        """A whole number of 1 or more."""
        value = self.value(key)
        if value in UNSAID:
            return default
        if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= MAX_COUNT:
            raise self.bad(key, "a whole number of 1 or more")
        return value

    def scalar(self, key: str) -> str:
        """A single value, of any kind, as text in lower case: "true", "2", "shard_grad_op"; else nothing."""
        value = self.value(key)
        small = isinstance(value, str | bool | float) or (isinstance(value, int) and abs(value) <= MAX_COUNT)
        return str(value).lower() if small else ""

    def flag(self, key: str, default: bool | None = None) -> bool | None:
        """true or false."""
        value = self.value(key)
        if value in UNSAID:
            return default
        if isinstance(value, str) and value.lower() in ("true", "false"):
            return value.lower() == "true"
        if not isinstance(value, bool):
            raise self.bad(key, "true or false")
        return value

    def word(self, key: str, default: str | None = None) -> str | None:
        """A text on one line."""
        value = self.value(key)
        if value in UNSAID:
            return default
        if not isinstance(value, str):
            raise self.bad(key, "a text")
        return value.strip() or default

    def words(self, key: str) -> tuple[str, ...] | None:
        """A list of texts, or texts parted by commas or spaces."""
        value = self.value(key)
        if value in UNSAID or value in ("", []):
            return None
        if isinstance(value, str):
            value = re.split(r"[,\s]+", value.strip(" ,"))
        if not isinstance(value, list) or not all(isinstance(item, str) and item.strip() for item in value):
            raise self.bad(key, "a list of names")
        return tuple(item.strip() for item in value)

    def choice(self, key: str, allowed: Iterable[str], default: str | None = None) -> str | None:
        """One of the words allowed; case does not count."""
        value = self.word(key)
        if value is None:
            return default
        found = next((word for word in allowed if word.lower() == value.lower()), None)
        if found is None:
            raise self.bad(key, f"one of {', '.join(allowed)}")
        return found


def python_calls(text: str, pattern: str) -> Section | None:
    """The arguments of the first call in Python source whose dotted name fits; None without such a call.

    `pattern` is a regular expression for the whole name. The source is parsed and never run: an argument
    that is neither a literal nor a name given a literal in the same file is left out, since only running it
    would tell. An attribute reads as its last part (`torch.bfloat16` as "bfloat16"); the first positional
    argument stands under "0".
    """
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    constants = _constants(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and re.fullmatch(pattern, _dotted(node.func)):
            said = {word.arg: _literal(word.value, constants) for word in node.keywords if word.arg}
            said |= {str(place): _literal(value, constants) for place, value in enumerate(node.args[:1])}
            return Section({key: value for key, value in said.items() if value is not None})
    return None


def python_assignments(text: str) -> Section:
    """What Python source assigns to attributes, as sections: `recipe.trainer.devices = 8` is `devices` under `trainer`,
    whatever object it is of. The source is parsed and never run.

    Of several assignments to one attribute the last counts. A call reads as a section of its literal arguments, with
    its name under "_call_"; what only running the source would tell is left out.
    """
    said: dict[str, Any] = {}
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return Section(said)
    constants = _constants(tree)
    for node in ast.walk(tree):
        if not isinstance(node, ast.Assign):
            continue
        for target in node.targets:
            _, *path = _dotted(target).split(".")
            if path and all(path):
                _put(said, path, _assigned(node.value, constants))
    return Section(said)


def _put(said: dict[str, Any], path: list[str], value: Any) -> None:
    """Sets what is under a path, making sections where there is none."""
    *sections, last = path
    for name in sections:
        inner = said.get(name)
        if not isinstance(inner, dict):
            inner = said[name] = {}
        said = inner
    if value is _UNTOLD:
        said.pop(last, None)
    else:
        said[last] = value


#: The value of an expression that only running it would tell.
_UNTOLD = object()


def _assigned(node: ast.expr, constants: Mapping[str, ast.expr]) -> Any:
    """A literal, a call as a section, None where it says None."""
    if isinstance(node, ast.Call):
        said = {"_call_": _dotted(node.func).rpartition(".")[2]}
        said |= {str(place): _dotted(value).rpartition(".")[2] for place, value in enumerate(node.args[:1])}
        arguments = {word.arg: _literal(word.value, constants) for word in node.keywords if word.arg}
        return said | {key: value for key, value in arguments.items() if value is not None}
    if isinstance(node, ast.Constant) and node.value is None:
        return None
    found = _literal(node, constants)
    return _UNTOLD if found is None else found


def _constants(tree: ast.AST) -> dict[str, ast.expr]:
    """What each plain name of a program is assigned last."""
    return {
        target.id: node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
    }


def _dotted(node: ast.expr) -> str:
    if isinstance(node, ast.Attribute):
        return f"{_dotted(node.value)}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else ""


def _literal(node: ast.expr, constants: Mapping[str, ast.expr]) -> Any:
    if isinstance(node, ast.Name):
        node = constants.get(node.id, node)
    if isinstance(node, ast.Attribute):
        return node.attr
    try:
        return ast.literal_eval(node)
    except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError):
        return None


class Reading:
    """Settings being gathered from a file, with notes on what they cannot hold."""

    def __init__(self, **fields: Any) -> None:
        self.fields: dict[str, Any] = fields
        self.notes: list[str] = []

    def settings(self) -> TrainingSettings:
        """The settings so far."""
        return TrainingSettings(**self.fields, notes=tuple(self.notes)).solved()
