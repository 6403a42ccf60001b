"""PyTorch FSDP2: a training script around fully_shard, with the accumulation loop written out."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from batchfit.frameworks._huggingface import kernel_of
from batchfit.frameworks._writing import (
    Emitted,
    Note,
    comment,
    commented,
    counts,
    elsewhere,
    head,
    launch_line,
    python_value,
)
from batchfit.sentences import Code, Sentence
from batchfit.settings import TrainingSettings

NAME = "fsdp2"
TITLE = "PyTorch FSDP2"
FILENAME = "fsdp2_train.py"

#: What says a sentence in the language of the file.
Say = Callable[[Sentence], str]

_OPTIMIZERS = {
    "adamw": "torch.optim.AdamW(parameters, lr=LEARNING_RATE)",
    "adamw-fused": "torch.optim.AdamW(parameters, lr=LEARNING_RATE, fused=True)",
    "adamw-single": "torch.optim.AdamW(parameters, lr=LEARNING_RATE, foreach=False)",
    "adamw-8bit": "AdamW8bit(parameters, lr=LEARNING_RATE)",
    "adam": "torch.optim.Adam(parameters, lr=LEARNING_RATE)",
    "momentum": "torch.optim.SGD(parameters, lr=LEARNING_RATE, momentum=0.9)",
    "sgd": "torch.optim.SGD(parameters, lr=LEARNING_RATE)",
}
_TORCH_DTYPES = {"bf16": "torch.bfloat16", "fp16": "torch.float16"}


def emit(settings: TrainingSettings, lang: str) -> Emitted:
    """A script that runs as it is, on a small stand-in where no model is named, and on random tokens."""
    counts(settings, TITLE)
    notes = _notes(settings)
    nodes = f"--nnodes {settings.nodes} " if (settings.nodes or 1) > 1 else ""
    launch = launch_line(
        f"torchrun {nodes}--nproc-per-node {settings.replicas_per_node or 'GPUS'} {FILENAME}"
    )
    say = partial(comment, lang=lang)
    parts = [
        commented(head(TITLE, settings, notes, launch, lang=lang)) + _imports(settings),
        _constants(settings, say),
        _selective(say) if settings.checkpointing == "selective" else "",
        _load_named(settings, say) if settings.model else _stand_in(say),
        _shard(settings, say),
        _step(settings, say),
        _main(settings, say),
    ]
    return Emitted("\n\n".join(part for part in parts if part), FILENAME, tuple(notes))


def _imports(settings: TrainingSettings) -> str:
    checkpoint = settings.checkpointing in ("full", "selective")
    lines = ["import os"]
    if settings.checkpointing == "selective":
        lines.append("from functools import partial")
    lines += ["", "import torch", "import torch.distributed as dist", "import torch.nn.functional as F"]
    if settings.optimizer == "adamw-8bit":
        lines.append("from torchao.optim import AdamW8bit")
    if checkpoint:
        lines.append(
            "from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper"
        )
    mixed = (settings.precision or "").endswith("-mixed")
    lines.append(f"from torch.distributed.fsdp import {'MixedPrecisionPolicy, ' if mixed else ''}fully_shard")
    if settings.checkpointing == "selective":
        lines.append(
            "from torch.utils.checkpoint import CheckpointPolicy, create_selective_checkpoint_contexts"
        )
    if settings.model:
        lines.append("from transformers import AutoModelForCausalLM")
        if settings.lora_rank:
            lines.append("from peft import LoraConfig, get_peft_model")
    return "\n".join(lines) + "\n"


def _constants(settings: TrainingSettings, say: Say) -> str:
    seq_len = settings.seq_len or 128
    reduction = (
        Sentence(
            "True: each micro-batch ends with a reduce-scatter, and gradients stay sharded, as the plan assumes."
        ),
        Sentence(
            "False reduces once per window and saves that communication, but until then every GPU keeps the gradient "
            "of the whole model: 4 bytes for each parameter under 32-bit gradients, 2 under 16-bit ones."
        ),
    )
    return f"""MICRO_BATCH = {settings.micro_batch}
ACCUMULATION_STEPS = {settings.accumulation_steps}
SEQ_LEN = {seq_len}
LEARNING_RATE = 1e-5  # {say(Sentence("yours to choose: memory does not depend on it"))}
IGNORED = -100  # {say(Sentence("the label of tokens that do not count"))}

{commented([say(each) for each in reduction])}REDUCE_EVERY_MICRO_BATCH = True
"""


def _selective(say: Say) -> str:
    kept = Sentence(
        "What is kept in the forward pass: products and attention, which cost most to compute again."
    )
    return commented([say(kept)]) + _POLICY


_POLICY = """SAVED = {
    torch.ops.aten.mm.default,
    torch.ops.aten.addmm.default,
    torch.ops.aten._scaled_dot_product_flash_attention.default,
    torch.ops.aten._scaled_dot_product_efficient_attention.default,
    torch.ops.aten._scaled_dot_product_cudnn_attention.default,
}


def policy(context, operator, *args, **kwargs):
    return CheckpointPolicy.MUST_SAVE if operator in SAVED else CheckpointPolicy.PREFER_RECOMPUTE
"""


def _stand_in(say: Say) -> str:
    what = Sentence("A small model, so that this file runs as it is. Put yours in load_model.")
    return f'class StandIn(torch.nn.Module):\n    """{say(what)}"""\n' + _STAND_IN


_STAND_IN = """
    vocabulary = 1000

    def __init__(self):
        super().__init__()
        self.embed = torch.nn.Embedding(self.vocabulary, 64)
        self.blocks = torch.nn.ModuleList(
            torch.nn.TransformerEncoderLayer(64, 4, 256, dropout=0.0, batch_first=True) for _ in range(2)
        )
        self.head = torch.nn.Linear(64, self.vocabulary)

    def forward(self, tokens):
        hidden = self.embed(tokens)
        for block in self.blocks:
            hidden = block(hidden)
        return self.head(hidden)


def load_model():
    return StandIn(), StandIn.vocabulary


def logits_of(model, tokens):
    return model(tokens)
"""


def _load_named(settings: TrainingSettings, say: Say) -> str:
    short = (settings.precision or "bf16-mixed").removesuffix("-mixed")
    pure = settings.precision in _TORCH_DTYPES
    arguments = [python_value(settings.model), f"dtype={_TORCH_DTYPES[short] if pure else 'torch.float32'}"]
    if settings.attention:
        arguments.append(f"attn_implementation={python_value(kernel_of(settings.attention))}")
    lines = [
        "def load_model():",
        "    model = AutoModelForCausalLM.from_pretrained(",
        *(f"        {argument}," for argument in arguments),
        "    )",
    ]
    if settings.lora_rank:
        targets = settings.lora_targets or ()
        value = python_value(targets[0] if targets == ("all-linear",) else targets)
        said = f"r={settings.lora_rank}{f', target_modules={value}' if targets else ''}"
        kept = Sentence("FSDP2 wants one dtype in each unit, so the adapters keep the dtype of the weights.")
        lines += [
            f"    # {say(kept)}",
            f'    config = LoraConfig({said}, task_type="CAUSAL_LM")',
            "    model = get_peft_model(model, config, autocast_adapter_dtype=False)",
        ]
    lines += [
        "    return model, model.config.vocab_size",
        "",
        "",
        "def logits_of(model, tokens):",
        "    return model(input_ids=tokens, use_cache=False).logits",
    ]
    return "\n".join(lines) + "\n"


def _shard(settings: TrainingSettings, say: Say) -> str:
    repeated = Sentence("The repeated blocks: the list of modules with the most parameters.")
    unit = Sentence("Each block is one unit: gathered before it runs, freed after it.")
    options = f"reshard_after_forward={settings.sharding not in ('zero1', 'zero2')}"
    lines = [
        "def blocks_of(model):",
        f'    """{say(repeated)}"""',
        "    lists = [module for module in model.modules() if isinstance(module, torch.nn.ModuleList)]",
        "    return max(lists, key=lambda blocks: sum(p.numel() for p in blocks.parameters()))",
        "",
        "",
        "def shard(model):",
        f'    """{say(unit)}"""',
        "    blocks = blocks_of(model)",
    ]
    precision = settings.precision or ""
    short = precision.removesuffix("-mixed")
    if precision in _TORCH_DTYPES:
        lines.append(f"    model.to({_TORCH_DTYPES[precision]})")
    elif short in _TORCH_DTYPES:
        mixed = Sentence(
            "Shards stay in 32 bits; weights are gathered and used in 16, gradients summed in 32."
        )
        lines += [
            f"    # {say(mixed)}",
            "    precision = MixedPrecisionPolicy(",
            f"        param_dtype={_TORCH_DTYPES[short]}, reduce_dtype=torch.float32",
            "    )",
        ]
        options += ", mp_policy=precision"
    if settings.checkpointing == "full":
        lines += [
            "    for index, block in enumerate(blocks):",
            "        blocks[index] = checkpoint_wrapper(block)",
        ]
    elif settings.checkpointing == "selective":
        lines += [
            "    context = partial(create_selective_checkpoint_contexts, policy)",
            "    for index, block in enumerate(blocks):",
            "        blocks[index] = checkpoint_wrapper(block, context_fn=context)",
        ]
    lines += [
        "    for block in blocks:",
        f"        fully_shard(block, {options})",
        f"    return fully_shard(model, {options})",
    ]
    return "\n".join(lines) + "\n"


def _step(settings: TrainingSettings, say: Say) -> str:
    what = Sentence(
        "One optimizer step over the micro-batches of {window}. Returns the loss per token.",
        window=Code("window"),
    )
    why = Sentence(
        "Micro-batches may hold different numbers of tokens, so a mean of means would weigh tokens unequally. Each "
        "loss is a sum, divided by the tokens of the whole window on all replicas."
    )
    averaged = Sentence(
        "FSDP averages gradients over the replicas: times their number, the average is the sum."
    )
    scaled = settings.precision in ("fp16", "fp16-mixed")
    backward = "scaler.scale(loss).backward()" if scaled else "loss.backward()"
    finish = "scaler.step(optimizer)\n    scaler.update()" if scaled else "optimizer.step()"
    return f'''def train_step(model, optimizer, window{", scaler" if scaled else ""}):
    """{say(what)}

{commented([say(why)], "   ")}    """
    device = window[0][0].device
    tokens = torch.stack([(labels != IGNORED).sum() for _, labels in window]).sum()
    dist.all_reduce(tokens)
    total = torch.zeros((), device=device)
    for index, (inputs, labels) in enumerate(window):
        last = index == len(window) - 1
        model.set_requires_gradient_sync(REDUCE_EVERY_MICRO_BATCH or last)
        logits = logits_of(model, inputs).flatten(0, 1).float()
        loss = F.cross_entropy(logits, labels.flatten(), ignore_index=IGNORED, reduction="sum")
        # {say(averaged)}
        loss = loss * dist.get_world_size() / tokens
        total += loss.detach()
        {backward}
    {finish}
    optimizer.zero_grad()
    dist.all_reduce(total)
    return (total / dist.get_world_size()).item()
'''


def _main(settings: TrainingSettings, say: Say) -> str:
    scaled = settings.precision in ("fp16", "fp16-mixed")
    scaler = "\n    scaler = torch.amp.GradScaler(device.type)" if scaled else ""
    optimizer = _OPTIMIZERS.get(settings.optimizer or "adamw", _OPTIMIZERS["adamw"])
    return f'''def micro_batches(vocabulary, device):
    """{say(Sentence("Random tokens. Put your data here: inputs, and labels already moved one token ahead."))}"""
    while True:
        tokens = torch.randint(vocabulary, (MICRO_BATCH, SEQ_LEN + 1), device=device)
        yield tokens[:, :-1], tokens[:, 1:]


def main(steps=3):
    dist.init_process_group()
    device = torch.accelerator.current_accelerator() or torch.device("cpu")
    if device.type != "cpu":
        torch.accelerator.set_device_index(int(os.environ["LOCAL_RANK"]))
    torch.manual_seed(0)  # {say(Sentence("every replica starts from the same weights"))}
    model, vocabulary = load_model()
    model = shard(model)
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer = {optimizer}{scaler}
    torch.manual_seed(dist.get_rank())  # {say(Sentence("each replica draws its own samples"))}
    data = micro_batches(vocabulary, device)
    for step in range(steps):
        window = [next(data) for _ in range(ACCUMULATION_STEPS)]
        loss = train_step(model, optimizer, window{", scaler" if scaled else ""})
        if dist.get_rank() == 0:
            print(f"step {{step}}: loss {{loss:.4f}}")
    dist.barrier()  # {say(Sentence("nobody leaves while another still needs it"))}
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
'''


def _notes(settings: TrainingSettings) -> list[Note]:
    notes = elsewhere(settings, "replicas", "nodes", "quantize")
    if settings.optimizer and settings.optimizer not in _OPTIMIZERS:
        missing = Sentence(
            "PyTorch has no {name} for sharded tensors; AdamW holds more.", name=Code(settings.optimizer)
        )
        notes.append(Note("optimizer", missing))
    if settings.sharding == "zero1":
        notes.append(
            Note("sharding", Sentence("FSDP2 shards gradients with the states: it holds what ZeRO-2 holds."))
        )
    if settings.sharding in ("none", "ddp"):
        notes.append(
            Note(
                "sharding", Sentence("This shards weights, gradients and states: it needs less than planned.")
            )
        )
    if settings.model is None:
        named = ("attention", "lora_rank", "lora_targets")
        loaded = Sentence("Set it where your model is loaded.")
        notes += [Note(name, loaded) for name in named if getattr(settings, name)]
    elif settings.lora_rank:
        notes.append(Note("lora_rank", Sentence("The adapters have the dtype of the weights, not 32 bits.")))
    return notes
