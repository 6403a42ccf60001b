"""transformers: TrainingArguments as Python, with the model loaded as the plan assumes."""

from __future__ import annotations

from batchfit.frameworks._huggingface import (
    arguments,
    attention_of,
    from_arguments,
    kernel_of,
    launch_notes,
    only,
    with_weights,
)
from batchfit.frameworks._reading import Reading, Section, file_format, python_calls
from batchfit.frameworks._writing import (
    Emitted,
    Note,
    comment,
    commented,
    elsewhere,
    head,
    python_value,
    torchrun,
)
from batchfit.sentences import Sentence
from batchfit.settings import TrainingSettings

NAME = "trainer-python"
TITLE = "transformers TrainingArguments (Python)"
FILENAME = "train.py"

_ARGUMENTS = r"(.*\.)?\w*TrainingArguments"
_MODEL = r"(.*\.)?\w*(Model|For)\w*\.from_pretrained"


def emit(settings: TrainingSettings, lang: str) -> Emitted:
    """A Python module with `training_args`, and a `load_model` in the right dtype, attention and adapters."""
    said, notes = arguments(settings, TITLE)
    notes += elsewhere(settings, "seq_len") + launch_notes(settings)
    if settings.model is None:
        notes.append(Note("model", Sentence("Name your model in load_model.")))
    lines = head(TITLE, settings, notes, torchrun(settings, FILENAME), lang=lang)
    keywords = "".join(f"    {key}={python_value(value)},\n" for key, value in only(said).items())
    source = (
        commented(lines)
        + f"import torch\n{_imports(settings)}\n"
        + f'training_args = TrainingArguments(\n    output_dir="out",\n{keywords})\n\n\n'
        + _load_model(settings, lang)
    )
    return Emitted(source, FILENAME, tuple(notes))


def _imports(settings: TrainingSettings) -> str:
    names = [
        "AutoModelForCausalLM",
        "TrainingArguments",
        *(["BitsAndBytesConfig"] if settings.quantize else []),
    ]
    peft = "from peft import LoraConfig, get_peft_model\n" if settings.lora_rank else ""
    return f"{peft}from transformers import {', '.join(sorted(names))}\n"


def _load_model(settings: TrainingSettings, lang: str) -> str:
    said = [python_value(settings.model) if settings.model else "name"]
    if settings.precision or settings.quantize:
        said.append(f"dtype={_dtype(settings)}")
    if settings.attention:
        said.append(f"attn_implementation={python_value(kernel_of(settings.attention))}")
    if settings.quantize:
        said.append("quantization_config=quantization")
    lines = [
        f"def load_model({'' if settings.model else 'name'}):",
        f'    """{comment(Sentence("The model as the plan assumes it."), lang)}"""',
        *(f"    {line}" for line in _quantization(settings)),
        "    model = AutoModelForCausalLM.from_pretrained(",
        *(f"        {argument}," for argument in said),
        "    )",
    ]
    if settings.lora_rank:
        lines.append(
            f'    config = LoraConfig(r={settings.lora_rank}{_targets(settings)}, task_type="CAUSAL_LM")'
        )
    lines.append(f"    return {'get_peft_model(model, config)' if settings.lora_rank else 'model'}")
    return "\n".join(lines) + "\n"


def _quantization(settings: TrainingSettings) -> list[str]:
    if settings.quantize == "nf4":
        return [
            "quantization = BitsAndBytesConfig(",
            "    load_in_4bit=True,",
            '    bnb_4bit_quant_type="nf4",',
            f"    bnb_4bit_compute_dtype={_dtype(settings)},",
            ")",
        ]
    return ["quantization = BitsAndBytesConfig(load_in_8bit=True)"] if settings.quantize else []


def _dtype(settings: TrainingSettings) -> str:
    """Mixed precision keeps 32-bit weights; quantized ones are computed with in 16 bits all the same."""
    name = settings.precision or "bf16"
    if name.endswith("-mixed") and not settings.quantize:
        name = "fp32"
    short = name.removesuffix("-mixed")
    return {"fp32": "torch.float32", "bf16": "torch.bfloat16", "fp16": "torch.float16"}[short]


def _targets(settings: TrainingSettings) -> str:
    if not settings.lora_targets:
        return ""
    one = settings.lora_targets == ("all-linear",)
    return f", target_modules={python_value(settings.lora_targets[0] if one else settings.lora_targets)}"


def detect(text: str, filename: str) -> bool:
    """Python that makes TrainingArguments."""
    return file_format(text, filename) == "python" and python_calls(text, _ARGUMENTS) is not None


def read(text: str, filename: str) -> TrainingSettings:
    """The literal arguments of TrainingArguments, and what is said where the model is loaded.

    The source is never run, so an argument that is computed is not known.
    """
    reading = from_arguments(python_calls(text, _ARGUMENTS) or Section({}))
    _read_model(text, reading)
    return reading.settings()


def _read_model(text: str, reading: Reading) -> None:
    loading = python_calls(text, _MODEL) or Section({})
    quantized = python_calls(text, r"(.*\.)?BitsAndBytesConfig") or Section({})
    lora = python_calls(text, r"(.*\.)?LoraConfig")
    if quantized.flag("load_in_4bit") or quantized.flag("load_in_8bit"):
        reading.fields["quantize"] = "nf4" if quantized.flag("load_in_4bit") else "int8"
    dtype = loading.word("dtype") or loading.word("torch_dtype")
    reading.fields |= {
        "model": loading.word("0"),
        "attention": attention_of(loading.word("attn_implementation")),
    }
    if lora is not None:
        reading.fields |= {"lora_rank": lora.count("r", 8), "lora_targets": lora.words("target_modules")}
    with_weights(reading, dtype)
