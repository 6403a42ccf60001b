"""What to change after an out-of-memory error, cheapest first, computed from the message's numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from batchfit.gpus import load_gpus
from batchfit.oom.message import MPS_HIGH_WATERMARK_RATIO, OutOfMemory
from batchfit.units import format_bytes

#: Processes of about equal size, none larger than this, are other ranks' contexts: a context with its kernels takes
#: a few hundred MiB (see context_mib in the catalogue of GPUs), a rank that trains takes far more.
_CONTEXT_AT_MOST = 2**30


@dataclass(frozen=True, slots=True)
class Advice:
    """One change. `commands` are to be typed as they stand; `settings` go into the training script or its config.

    frees   bytes that it frees, where the message tells
    """

    action: str
    why: str
    commands: tuple[str, ...] = ()
    settings: tuple[str, ...] = ()
    frees: int | None = None

    def as_json(self) -> dict[str, object]:
        """The change as data."""
        return {
            "action": self.action,
            "why": self.why,
            "commands": list(self.commands),
            "settings": list(self.settings),
            "frees_bytes": self.frees,
        }


def advise(oom: OutOfMemory) -> tuple[Advice, ...]:
    """What to change, in order of what it costs: first what is free, then what costs time, then what costs money."""
    if oom.origin == "host":
        return tuple(_host(oom))
    rules = _GPU_RULES if oom.origin == "pytorch" else (_find_numbers, *_GPU_RULES)
    return tuple(advice for rule in rules for advice in rule(oom))


def batch_is_no_help(oom: OutOfMemory) -> bool:
    """What ran out does not depend on the micro-batch: loading a model, or the optimizer's own memory."""
    return oom.activity in ("model load", "optimizer step", "gradient clipping")


def _size(count: int) -> str:
    return format_bytes(count)


# --- the rules, in order of cost ----------------------------------------------------------------------------


def _impossible(oom: OutOfMemory) -> Iterator[Advice]:
    room = oom.limit if oom.limited else oom.capacity
    if oom.overflow or (oom.requested is not None and room is not None and oom.requested > 20 * room):
        yield Advice(
            "Look for a wrong shape or a wrong size first",
            "No model needs one tensor of that size: an index, a sequence length or an uninitialised length is off.",
        )
    elif oom.impossible and oom.requested is not None:
        yield Advice(
            f"Find the one tensor of {_size(oom.requested)}{f' at {oom.where}' if oom.where else ''}",
            "It alone is larger than what there is to use, so nothing that frees memory around it helps. "
            "Attention scores grow with the square of the sequence length, logits with sequence × vocabulary.",
            settings=('attn_implementation="sdpa"',) if oom.tensor in (None, "attention") else (),
        )


def _other_ranks(oom: OutOfMemory) -> Iterator[Advice]:
    if contexts := contexts_of_other_ranks(oom):
        total = sum(size for _, size in contexts)
        yield Advice(
            f"Let each process use its own GPU only: {len(contexts)} others opened a context on this one",
            f"They hold {_size(contexts[0][1])} each and nothing more, which is what a rank leaves on a GPU that it "
            "touches before it chooses its own.",
            settings=(
                "torch.cuda.set_device(int(os.environ['LOCAL_RANK']))  # before anything else touches CUDA",
            ),
            frees=total,
        )


def contexts_of_other_ranks(oom: OutOfMemory) -> tuple[tuple[int, int], ...]:
    """Three or more small processes of about the same size: ranks that opened a context where they do not train."""
    small = [other for other in oom.others if 0 < other[1] <= _CONTEXT_AT_MOST]
    sizes = [size for _, size in small]
    alike = len(small) >= 3 and max(sizes) <= 1.1 * min(sizes)
    return tuple(small) if alike else ()


def _other_processes(oom: OutOfMemory) -> Iterator[Advice]:
    held = oom.elsewhere
    if held is None or contexts_of_other_ranks(oom) or oom.limited or oom.spilled:
        return
    # What is left over without a list of processes has this process's own context in it.
    if not oom.others and oom.process is None:
        held -= _CONTEXT_AT_MOST
    short = oom.short_by
    if held < 2**30 and (short is None or not 0 < short <= held):
        return
    tool = {"HIP": "rocm-smi --showpids", "XPU": "xpu-smi ps", "NPU": "npu-smi info"}.get(
        oom.backend, "nvidia-smi"
    )
    pids = [str(pid) for pid, size in oom.others if size >= 2**28]
    enough = " That alone would have been enough." if short is not None and 0 < short <= held else ""
    yield Advice(
        f"Free the {_size(held)} that other processes hold",
        f"A notebook, a server or a run that did not end keeps its memory until it exits.{enough}",
        commands=(tool, *([f"kill {' '.join(pids)}  # once you know what they are"] if pids else [])),
        frees=held,
    )


def _limit(oom: OutOfMemory) -> Iterator[Advice]:
    if not oom.limited or oom.limit is None:
        return
    if oom.backend == "MPS":
        if oom.outside and oom.allocated is not None and oom.outside > 2**30:
            yield Advice(
                f"Find what holds {_size(oom.outside)} outside PyTorch's allocator",
                "MPS counts it too: compiled graphs for every new shape, command buffers, or other Metal use. Pad to "
                "few shapes and call torch.mps.empty_cache() between phases.",
                frees=oom.outside,
            )
        yield Advice(
            "Lift PyTorch's limit, for a run that you watch",
            f"It stops at {MPS_HIGH_WATERMARK_RATIO} times what Metal recommends; beyond, macOS swaps and can freeze.",
            commands=("export PYTORCH_MPS_HIGH_WATERMARK_RATIO=0.0",),
        )
    elif oom.backend == "XPU" and oom.limit == 4 * 2**30:
        yield Advice(
            "Allow, or avoid, single tensors above 4 GB",
            "Some Intel GPUs refuse one block above 4 GB however much is free: split the batch that makes it.",
        )
    else:
        yield Advice(
            f"Raise the limit of {_size(oom.limit)} for this process",
            "torch.cuda.set_per_process_memory_fraction, or the serving tool that calls it, allows no more; the GPU "
            "itself has room.",
            settings=("torch.cuda.set_per_process_memory_fraction(1.0)",),
        )


def _fragmentation(oom: OutOfMemory) -> Iterator[Advice]:
    unused, short = oom.unallocated, oom.short_by
    if unused is None or unused < 2**26 or oom.limited or oom.backend == "MPS" or oom.impossible:
        return
    if not oom.fragmented and not (short is not None and 0 < short <= unused):
        return
    little = "" if oom.fragmented else " That may get past this request, and not much further."
    why = f"{_size(unused)} of PyTorch's own memory lie unused, in pieces too small for this request.{little}"
    if oom.backend == "XPU":
        yield Advice(
            "Give the cache back before the large allocation", why, settings=("torch.xpu.empty_cache()",)
        )
        return
    setting = oom.setting or "PYTORCH_CUDA_ALLOC_CONF"
    yield Advice(
        "Let PyTorch's allocator grow its segments",
        f"{why} Needs PyTorch 2.1 or later, on Linux; before that, max_split_size_mb:128.",
        commands=(f"export {setting}=expandable_segments:True",),
        frees=unused,
    )


def _spill(oom: OutOfMemory) -> Iterator[Advice]:
    if oom.spilled and oom.allocated is not None and oom.capacity is not None:
        yield Advice(
            "Count on the GPU's own memory only",
            f"Windows let CUDA put {_size(oom.allocated - oom.capacity)} into the computer's memory, which is many "
            "times slower; under NVIDIA Control Panel, 'CUDA - Sysmem Fallback Policy' turns it off.",
        )


def _evaluation(oom: OutOfMemory) -> Iterator[Advice]:
    if oom.activity == "evaluation":
        yield Advice(
            "Make the evaluation's batch smaller, and move its predictions off the GPU",
            "It ran out while evaluating, not while training: predictions of every batch pile up on the GPU.",
            settings=(
                "per_device_eval_batch_size=1",
                "eval_accumulation_steps=1",
                "prediction_loss_only=True",
            ),
        )


def _halve(oom: OutOfMemory) -> Iterator[Advice]:
    if batch_is_no_help(oom) or oom.activity == "evaluation" or oom.overflow:
        return
    micro, steps = oom.micro_batch, oom.accumulation_steps
    if micro == 1:
        return
    same = "Activation memory halves; weights, gradients and optimizer state stay."
    if micro is None:
        yield Advice(
            "Halve the micro-batch size and double the gradient accumulation steps",
            f"The effective batch size stays the same. {same}",
            settings=()
            if oom.origin in ("jax", "tensorflow")
            else ("per_device_train_batch_size: half", "gradient_accumulation_steps: double"),
        )
        return
    now = steps or 1
    half, double = (micro // 2, now * 2) if micro % 2 == 0 else (1, now * micro)
    yield Advice(
        f"Set the micro-batch size to {half} and the gradient accumulation steps to {double}",
        f"The effective batch size stays {micro} × {now} = {half} × {double} = {micro * now} on each GPU. {same}",
        settings=(f"per_device_train_batch_size={half}", f"gradient_accumulation_steps={double}"),
    )


def _tensor(oom: OutOfMemory) -> Iterator[Advice]:
    if oom.tensor == "logits":
        yield Advice(
            "Compute the loss without keeping whole logits",
            "It ran out at the logits or their loss: sequence × vocabulary, often once more in fp32. A fused or "
            "chunked cross-entropy never makes them whole.",
            settings=("use_liger_kernel=True",),
        )
    elif oom.tensor == "attention":
        yield Advice(
            "Use an attention that does not write its scores to memory",
            "It ran out in attention: with eager attention the scores take heads × sequence² for each sample.",
            settings=('attn_implementation="flash_attention_2"', 'attn_implementation="sdpa"'),
        )


def _checkpointing(oom: OutOfMemory) -> Iterator[Advice]:
    if batch_is_no_help(oom) or oom.activity in ("evaluation", "sharding") or oom.overflow:
        return
    if oom.tensor == "recomputed activations":
        return
    yield Advice(
        "Turn on activation checkpointing",
        "Only a layer's input is kept, and the rest is computed again in backward: about a third more time.",
        settings={"jax": ("jax.checkpoint(layer)",), "tensorflow": ("tf.recompute_grad(layer)",)}.get(
            oom.origin, ("gradient_checkpointing=True", "model.config.use_cache = False")
        ),
    )


def _optimizer(oom: OutOfMemory) -> Iterator[Advice]:
    if oom.activity != "optimizer step":
        return
    if oom.tensor == "optimizer temporaries":
        yield Advice(
            "Use the fused optimizer",
            "PyTorch's default updates all parameters at once, with temporaries as large as they are; fused has none.",
            settings=('optim="adamw_torch_fused"', "torch.optim.AdamW(..., fused=True)"),
            frees=oom.requested,
        )
    yield Advice(
        "Keep the optimizer state in 8 bits, shard it, or train fewer parameters",
        "Adam keeps two numbers for each trained parameter, made in the first optimizer step: 8 bytes in fp32, 2 in 8 "
        "bits. ZeRO and FSDP divide them by the GPUs; LoRA has next to none.",
        settings=('optim="adamw_8bit"', "zero_optimization: {stage: 1}"),
    )


def _model_load(oom: OutOfMemory) -> Iterator[Advice]:
    if oom.activity == "model load":
        yield Advice(
            "Load the weights in 16 bits or fewer, or over several GPUs",
            "It ran out while the weights were being put on the GPU, before any batch: 2 bytes a parameter in bf16, "
            "about 0.5 in 4 bits, 4 in fp32.",
            settings=(
                "dtype=torch.bfloat16",
                "BitsAndBytesConfig(load_in_4bit=True)",
                "FSDP or ZeRO stage 3",
            ),
        )


def _larger_card(oom: OutOfMemory) -> Iterator[Advice]:
    short, capacity = oom.short_by, oom.capacity
    vendor = {"CUDA": "NVIDIA", "HIP": "AMD", "XPU": "Intel"}.get(oom.backend)
    if vendor is None or short is None or short <= 0 or capacity is None or oom.overflow or oom.limited:
        return
    needed = capacity + short
    fitting = [
        g for g in load_gpus() if g.vendor == vendor and g.memory_bytes >= needed and "laptop" not in g.id
    ]
    if not fitting:
        return
    smallest = min(gpu.marketed_gb for gpu in fitting)
    ids = sorted(gpu.id for gpu in fitting if gpu.marketed_gb == smallest)[:4]
    yield Advice(
        f"Or take a GPU with at least {_size(needed)} to use: {', '.join(ids)}",
        "That is what this one request needed. What comes after it is not known, so leave room.",
        commands=("batchfit gpus",),
    )


def _host(oom: OutOfMemory) -> Iterator[Advice]:
    yield Advice(
        "Free memory of the computer, not of the GPU",
        "The host's memory ran out: data-loading workers each hold a copy of what they read, and offloaded optimizer "
        "state and checkpoints live there too.",
        commands=("free -h", "dmesg | grep -i 'killed process'"),
        settings=("dataloader_num_workers=2", "torch.load(..., mmap=True)"),
    )


def _find_numbers(oom: OutOfMemory) -> Iterator[Advice]:
    tool = {"HIP": "rocm-smi --showmeminfo vram"}.get(oom.backend, "nvidia-smi")
    what = {
        "cublas": "cuBLAS could not get its workspace",
        "cudnn": "cuDNN could not get its workspace",
        "nccl": "NCCL could not get its buffers, which it takes outside PyTorch's allocator",
        "bitsandbytes": "bitsandbytes allocates outside PyTorch's allocator; paged state takes the host's memory too",
        "jax": "JAX takes 75 % of the GPU at its start, so a second process finds little",
        "tensorflow": "TensorFlow takes the whole GPU at its start, so a second process finds nothing",
    }.get(oom.origin, "the driver refused an allocation")
    yield Advice(
        "See what holds the GPU just before the error",
        f"This message does not say what holds it: {what}. PyTorch's cache may hold nearly everything by then.",
        commands=(tool,),
        settings={
            "jax": ("XLA_PYTHON_CLIENT_PREALLOCATE=false",),
            "tensorflow": ("TF_FORCE_GPU_ALLOW_GROWTH=true",),
        }.get(oom.origin, ("torch.cuda.empty_cache()", "print(torch.cuda.memory_summary())")),
    )


#: For PyTorch's own messages, and after `_find_numbers` for what other libraries say of the GPU.
_GPU_RULES: tuple[Callable[[OutOfMemory], Iterator[Advice]], ...] = (
    _impossible,
    _other_ranks,
    _other_processes,
    _limit,
    _fragmentation,
    _spill,
    _evaluation,
    _model_load,
    _optimizer,
    _tensor,
    _halve,
    _checkpointing,
    _larger_card,
)
