"""transformers: TrainingArguments as YAML, as HfArgumentParser reads it."""

from __future__ import annotations

from batchfit.frameworks._huggingface import arguments, beyond_arguments, from_arguments
from batchfit.frameworks._reading import Section, keys_of, load
from batchfit.frameworks._writing import Emitted, commented, head, torchrun, yaml_text
from batchfit.settings import TrainingSettings

NAME = "trainer"
TITLE = "transformers TrainingArguments (YAML)"
FILENAME = "training.yaml"


def emit(settings: TrainingSettings, lang: str) -> Emitted:
    """A YAML file for `HfArgumentParser(TrainingArguments).parse_yaml_file`."""
    said, notes = arguments(settings, TITLE)
    notes += beyond_arguments(settings)
    lines = head(TITLE, settings, notes, torchrun(settings, f"train.py {FILENAME}"), lang=lang)
    return Emitted(commented(lines) + yaml_text({"output_dir": "out", **said}, lang), FILENAME, tuple(notes))


def detect(text: str, filename: str) -> bool:
    """Whether TrainingArguments' own name for the micro-batch is there."""
    return "per_device_train_batch_size" in keys_of(text, filename)


def read(text: str, filename: str) -> TrainingSettings:
    """The settings in a YAML or JSON file of TrainingArguments. Defaults are transformers' own."""
    return from_arguments(Section(load(text, filename))).settings()
