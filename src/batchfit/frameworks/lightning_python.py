"""Lightning: a Trainer and its DataLoader as Python."""

from __future__ import annotations

from batchfit.frameworks._lightning import from_trainer, trainer_arguments, trainer_notes
from batchfit.frameworks._reading import Section, file_format, python_calls
from batchfit.frameworks._writing import Emitted, comment, commented, counts, head, python_value
from batchfit.sentences import Sentence
from batchfit.settings import TrainingSettings

NAME = "lightning-python"
TITLE = "Lightning (Python)"
FILENAME = "lightning_train.py"

_TRAINER = r"(.*\.)?Trainer"
_LOADER = r"(.*\.)?DataLoader"


def emit(settings: TrainingSettings, lang: str) -> Emitted:
    """A Python module with a `trainer` and a `loader` of the micro-batch."""
    micro, _ = counts(settings, TITLE)
    notes = trainer_notes(settings)
    said = {key: value for key, value in trainer_arguments(settings).items() if value is not None}
    keywords = "".join(f"        {key}={python_value(value)},\n" for key, value in said.items())
    launch = Sentence("Lightning starts one process for each device: run with plain python.")
    lines = head(TITLE, settings, notes, launch, lang=lang)
    drawn = Sentence("Each GPU draws its own micro-batches; Lightning adds the distributed sampler.")
    source = (
        commented(lines)
        + "import lightning as L\nfrom torch.utils.data import DataLoader\n\n\n"
        + f"def make_trainer():\n    return L.Trainer(\n{keywords}    )\n\n\n"
        + "def make_loader(dataset):\n"
        + f"    # {comment(drawn, lang)}\n"
        + f"    return DataLoader(dataset, batch_size={micro}, shuffle=True, drop_last=True)\n"
    )
    return Emitted(source, FILENAME, tuple(notes))


def detect(text: str, filename: str) -> bool:
    """Python that makes a Trainer with Lightning's arguments."""
    if file_format(text, filename) != "python":
        return False
    trainer = python_calls(text, _TRAINER)
    marks = ("accumulate_grad_batches", "devices", "num_nodes", "max_epochs")
    return trainer is not None and any(mark in trainer for mark in marks)


def read(text: str, filename: str) -> TrainingSettings:
    """The literal arguments of the Trainer, and the batch size of the first DataLoader. Nothing is run."""
    reading = from_trainer(python_calls(text, _TRAINER) or Section({}))
    loader = python_calls(text, _LOADER)
    reading.fields["micro_batch"] = loader.count("batch_size", 1) if loader else None
    return reading.settings()
