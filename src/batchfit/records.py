"""Frozen dataclasses to JSON and back, strictly: an unknown key, a missing key or a wrong type is named by its path."""

from __future__ import annotations

import dataclasses
import types
import typing
from functools import cache
from typing import Any, TypeVar

from batchfit.errors import BadInput

Record = TypeVar("Record")


def to_json(value: Any) -> Any:
    """`value` as what `json.dumps` takes: dataclasses become objects in the order of their fields, tuples lists."""
    if dataclasses.is_dataclass(value):
        return {f.name: to_json(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, dict):
        return {key: to_json(item) for key, item in value.items()}
    if isinstance(value, (tuple, list)):
        return [to_json(item) for item in value]
    return value


def from_json(kind: type[Record], data: object, path: str) -> Record:
    """The `kind` that `data` (as `json.loads` gives it) describes. Raises BadInput naming the place, from `path` on."""
    read: Record = _read(kind, data, path)
    return read


def _read(kind: Any, data: Any, path: str) -> Any:
    if dataclasses.is_dataclass(kind):
        return _read_record(kind, data, path)
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin in (types.UnionType, typing.Union):
        if data is None and type(None) in arguments:
            return None
        (wanted,) = (argument for argument in arguments if argument is not type(None))
        return _read(wanted, data, path)
    if origin is tuple:
        return _read_tuple(arguments, data, path)
    if origin is dict:
        _expect(isinstance(data, dict), path, "an object", data)
        return {key: _read(arguments[1], item, f"{path}.{key}") for key, item in data.items()}
    return _read_scalar(kind, data, path)


def _read_record(kind: Any, data: Any, path: str) -> Any:
    _expect(isinstance(data, dict), path, "an object", data)
    hints = _hints(kind)
    for key in data:
        if key not in hints:
            raise BadInput(f"{path}.{key}", "is not a key we know; known are {known}", known=", ".join(hints))
    for field in dataclasses.fields(kind):
        optional = not (field.default is field.default_factory is dataclasses.MISSING)
        if field.name not in data and not optional:
            raise BadInput(f"{path}.{field.name}", "is missing")
    return kind(**{name: _read(hints[name], value, f"{path}.{name}") for name, value in data.items()})


def _read_tuple(arguments: tuple[Any, ...], data: Any, path: str) -> tuple[Any, ...]:
    _expect(isinstance(data, list), path, "a list", data)
    if arguments[-1] is Ellipsis:
        return tuple(_read(arguments[0], item, f"{path}[{i}]") for i, item in enumerate(data))
    _expect(len(data) == len(arguments), path, f"a list of {len(arguments)}", data)
    return tuple(
        _read(kind, item, f"{path}[{i}]") for i, (kind, item) in enumerate(zip(arguments, data, strict=True))
    )


_SCALARS = {int: "a whole number", float: "a number", str: "text", bool: "true or false"}


def _read_scalar(kind: Any, data: Any, path: str) -> Any:
    if kind in (Any, object):
        return data
    # A whole number is a number too; but true is neither, although Python counts it as an int.
    allowed = (int, float) if kind is float else kind
    _expect(
        isinstance(data, allowed) and (kind is bool or not isinstance(data, bool)), path, _SCALARS[kind], data
    )
    if kind is float:
        _expect(data == data and abs(data) != float("inf"), path, "a finite number", data)
    return data


def _expect(holds: bool, path: str, wanted: str, found: object) -> None:
    if not holds:
        shown = repr(found)
        raise BadInput(
            path,
            "must be {wanted}; it is {found}",
            wanted=wanted,
            found=shown if len(shown) <= 60 else f"{shown[:57]}...",
        )


@cache
def _hints(kind: Any) -> dict[str, Any]:
    hints = typing.get_type_hints(kind)
    return {field.name: hints[field.name] for field in dataclasses.fields(kind)}
