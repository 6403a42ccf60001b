"""Emitted files against the frameworks' own lists of keys, for those that are not installed here.

Each `schemas/NAME.json` lists field names, types and defaults, taken as facts from the framework's public
source at the commit it names.
"""

from __future__ import annotations

import ast
import dataclasses
import json
import re
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings

from batchfit import frameworks
from batchfit.settings import TrainingSettings
from tests.frameworks.strategies import planned

Schema = Mapping[str, Mapping[str, Mapping[str, Any]]]
SIMPLE: dict[str, Any] = {
    "int": int,
    "float": (int, float),
    "bool": bool,
    "str": str,
    "list": list,
    "dict": dict,
}
#: Sections that belong to another library, with names of their own.
ELSEWHERE = {
    "axolotl": ("deepspeed", "gradient_checkpointing_kwargs"),
    "composer": ("optimizer", "peft_config"),
    "deepspeed": ("optimizer",),
    "llamafactory": ("deepspeed", "fsdp_config"),
    "lightning": ("data",),
    "torchtune": ("optimizer",),
}


def schema(name: str) -> Schema:
    path = Path(__file__).parent / "schemas" / f"{name}.json"
    sections: Schema = json.loads(path.read_text())["sections"]
    return sections


def fits(value: Any, annotation: str) -> bool:
    """Whether a value can be of an annotated type; a type this does not know is taken on trust."""
    try:
        return _fits(value, ast.parse(annotation, mode="eval").body)
    except SyntaxError:
        return True


def _fits(value: Any, node: ast.expr) -> bool:
    if isinstance(node, ast.BinOp):
        return _fits(value, node.left) or _fits(value, node.right)
    if isinstance(node, ast.Constant):
        return value is None if node.value is None else True
    if isinstance(node, ast.Subscript):
        name, inner = ast.unparse(node.value).split(".")[-1], node.slice
        parts = inner.elts if isinstance(inner, ast.Tuple) else [inner]
        if name == "Literal":
            return any(isinstance(part, ast.Constant) and part.value == value for part in parts)
        if name in ("Optional", "Union"):
            return (name == "Optional" and value is None) or any(_fits(value, part) for part in parts)
        return _fits(value, node.value)
    known = SIMPLE.get(ast.unparse(node).lower())
    if known is None:
        return True
    return isinstance(value, known) and not (isinstance(value, bool) and known is not bool)


def faults(
    said: Mapping[str, Any], known: Schema, elsewhere: tuple[str, ...], section: str = ""
) -> Iterator[str]:
    """Keys that the framework does not have, and values of a type it does not take."""
    for key, value in said.items():
        if key in elsewhere or key == "_comment":
            continue
        if isinstance(value, dict) and key in known:
            yield from faults(value, known, elsewhere, key)
        elif key not in known.get(section, {}):
            yield f"{section}.{key} is not known"
        elif not fits(value, known[section][key].get("type", "Any")):
            yield f"{section}.{key}: {value!r} is no {known[section][key]['type']}"


def yaml_of(text: str) -> dict[str, Any]:
    yaml = pytest.importorskip("yaml")
    data: dict[str, Any] = yaml.safe_load(text)
    return data


def parsed(name: str, text: str) -> dict[str, Any]:
    if name == "deepspeed":
        data: dict[str, Any] = json.loads(text)
        return data
    return tomllib.loads(text) if name == "torchtitan" else yaml_of(text)


def known_to(name: str) -> Schema:
    if name == "llamafactory":  # it takes the arguments of transformers beside its own
        transformers = pytest.importorskip("transformers")
        theirs: dict[str, Mapping[str, Any]] = {
            field.name: {} for field in dataclasses.fields(transformers.TrainingArguments)
        }
        return {"": {**theirs, **schema(name)[""]}}
    if name == "torchtune":
        recipes = schema(name)
        both = {**recipes["full_finetune_distributed"], **recipes["lora_finetune_distributed"]}
        return {"": both, "model": recipes["model"], "tokenizer": recipes["tokenizer"]}
    return schema(name)


NAMES = ("axolotl", "composer", "deepspeed", "lightning", "llamafactory", "torchtitan", "torchtune")


@pytest.mark.parametrize("name", NAMES)
@given(planned=planned())
@settings(max_examples=150, deadline=None)
def test_every_key_and_value_is_one_the_framework_takes(name: str, planned: TrainingSettings) -> None:
    said = parsed(name, frameworks.emit(name, planned).text)
    assert list(faults(said, known_to(name), ELSEWHERE.get(name, ()))) == []


@given(planned=planned())
@settings(max_examples=150, deadline=None)
def test_every_flag_is_one_megatron_takes(planned: TrainingSettings) -> None:
    text = frameworks.emit("megatron", planned).text
    block = text[text.index("MEGATRON_ARGS=(") : text.index("\n)\n")]
    known = schema("megatron")[""]
    for line in block.splitlines()[1:]:
        flag, _, value = line.strip().removeprefix("--").partition(" ")
        assert flag in known
        kind, choices = known[flag].get("type"), known[flag].get("choices")
        assert (kind in ("flag", "bool")) == (value == "")
        assert not choices or value in choices
        assert kind not in ("int", "int | None") or value.isdecimal()


@given(planned=planned())
@settings(max_examples=150, deadline=None)
def test_everything_set_is_of_a_nemo_recipe(planned: TrainingSettings) -> None:
    known = schema("nemo")
    module = ast.parse(frameworks.emit("nemo", planned).text)
    (function,) = (node for node in module.body if isinstance(node, ast.FunctionDef))
    imported = {name.asname or name.name for node in module.body for name in getattr(node, "names", ())}
    used = {node.id for node in ast.walk(function) if isinstance(node, ast.Name)} - {"recipe"}
    assert used == imported
    for node in function.body:
        if isinstance(node, ast.Assign):
            section, _, key = ast.unparse(node.targets[0]).removeprefix("recipe.").rpartition(".")
            value = node.value
            if isinstance(value, ast.Call):
                said = {word.arg: ast.literal_eval(word.value) for word in value.keywords}
                assert key == "peft" or ast.unparse(value.func) in known["plugins"]
                assert list(faults({"peft": said}, known, ())) == []
            else:
                # A member of an enumeration reads as its name.
                plain = value.attr if isinstance(value, ast.Attribute) else ast.literal_eval(value)
                assert list(faults({key: plain}, known, (), section)) == []


@given(planned=planned())
@settings(max_examples=150, deadline=None)
def test_every_flag_is_one_later_torchtitan_takes(planned: TrainingSettings) -> None:
    text = re.sub(r"\n#\s*", " ", frameworks.emit("torchtitan", planned).text)
    flags = re.findall(r"--(training|parallelism)\.(\w+) ([\w-]+)", text)
    samples, tokens = schema("torchtitan-flags"), schema("torchtitan-tokens")
    said = {key: value for _, key, value in flags}
    assert int(said["local_batch_size"]) == planned.micro_batch
    if planned.seq_len and planned.micro_batch and planned.batch:
        assert int(said["num_tokens_per_train_step"]) == planned.batch * planned.seq_len
    for section, key, value in flags:
        known = tokens["training"] if "token" in key or "context" in key else samples[section]
        assert key in known
        assert fits(int(value) if value.isdecimal() else value, known[key]["type"])


@pytest.mark.parametrize(
    ("said", "fault"),
    [
        ({"training": {"local_batchsize": 4}}, "training.local_batchsize is not known"),
        ({"training": {"local_batch_size": "4"}}, "training.local_batch_size: '4' is no int"),
        ({"training": {"local_batch_size": True}}, "training.local_batch_size: True is no int"),
        ({"activation_checkpoint": {"mode": "some"}}, "activation_checkpoint.mode: 'some' is no Literal"),
        ({"trainning": {}}, ".trainning is not known"),
    ],
)
def test_the_check_finds_what_is_wrong(said: dict[str, Any], fault: str) -> None:
    found = list(faults(said, schema("torchtitan"), ()))
    assert len(found) == 1
    assert found[0].startswith(fault)


@pytest.mark.parametrize(
    "path", sorted((Path(__file__).parent / "schemas").glob("*.json")), ids=lambda p: p.stem
)
def test_a_schema_says_where_it_is_from(path: Path) -> None:
    document = json.loads(path.read_text())
    assert re.fullmatch(r"[0-9a-f]{40}", document["commit"])
    assert document["source"]
    assert all(document["sections"].values())
