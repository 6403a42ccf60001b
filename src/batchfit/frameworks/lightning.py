"""Lightning: the YAML of LightningCLI."""

from __future__ import annotations

from batchfit.frameworks._lightning import from_trainer, trainer_arguments, trainer_notes
from batchfit.frameworks._reading import Section, keys_of, load
from batchfit.frameworks._writing import Emitted, Remark, commented, counts, head, launch_line, yaml_text
from batchfit.sentences import Sentence
from batchfit.settings import TrainingSettings

NAME = "lightning"
TITLE = "Lightning (LightningCLI)"
FILENAME = "lightning.yaml"


def emit(settings: TrainingSettings, lang: str) -> Emitted:
    """YAML for `LightningCLI`: the Trainer's arguments, and the batch size of a data module."""
    micro, _ = counts(settings, TITLE)
    notes = trainer_notes(settings)
    config = {
        "trainer": trainer_arguments(settings),
        "data": {
            "batch_size": Remark(micro, Sentence("the micro-batch, as your LightningDataModule names it"))
        },
    }
    launch = launch_line(f"python main.py fit --config {FILENAME}")
    return Emitted(
        commented(head(TITLE, settings, notes, launch, lang=lang)) + yaml_text(config, lang),
        FILENAME,
        tuple(notes),
    )


def detect(text: str, filename: str) -> bool:
    """A `trainer` section with an argument that only Lightning's Trainer has."""
    if "trainer" not in keys_of(text, filename):
        return False
    trainer = load(text, filename)["trainer"]
    marks = {"accumulate_grad_batches", "devices", "max_epochs", "max_steps", "strategy"}
    return isinstance(trainer, dict) and bool(marks & set(trainer))


def read(text: str, filename: str) -> TrainingSettings:
    """The settings in a LightningCLI YAML. The micro-batch is the data module's `batch_size`."""
    file = Section(load(text, filename))
    reading = from_trainer(file.section("trainer"))
    data = file.section("data")
    inner = data.section("init_args")
    for section, key in ((data, "batch_size"), (inner, "batch_size"), (inner, "micro_batch_size")):
        if section.value(key) is not None:
            reading.fields["micro_batch"] = section.count(key)
    return reading.settings()
