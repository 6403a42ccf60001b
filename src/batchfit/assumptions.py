"""What profiles assume, as sentences that other languages can say. A profile's JSON keeps them as English text; here
that text is matched back to the sentence it was made from. What matches none is somebody else's, and stays as it is."""

from __future__ import annotations

import re
from functools import cache
from string import Formatter

from batchfit.sentences import Sentence

#: Every sentence that traces, measurements, sharding and corrections of profiles put among a profile's assumptions.
KNOWN = (
    Sentence(
        "cuBLAS's workspaces are those of cards before Hopper, 8.1 MiB for forward's thread and for backward's"
    ),
    Sentence("cuDNN's workspaces are not counted: they depend on the algorithms it picks on the card"),
    Sentence("Of {blocks} a few were traced; each further one adds what the last of them added.", blocks=""),
    Sentence(
        "All of {blocks} were traced: one more or fewer of these blocks changes more than what a block adds.",
        blocks="",
    ),
    Sentence("{model} has no other attention than eager", model=""),
    Sentence(
        "every product with 4-bit weights makes a 16-bit copy of the weight (since bitsandbytes 0.50 only those of "
        "more than 1536 rows and those in backward)"
    ),
    Sentence(
        "every product with 4-bit weights makes a 16-bit copy of the weight, as the Triton kernels of AutoGPTQ and "
        "GPTQModel do"
    ),
    Sentence(
        "tokens are spread evenly over the experts of a layer, or whatever a model picks by the highest values"
    ),
    Sentence("no activation is an outlier for LLM.int8(): how many columns are depends on the data"),
    Sentence("the loss is taken in 8 pieces of the sequence, as torchtune does"),
    Sentence(
        "the loss is fused with the output layer as in Liger-Kernel 0.8; its rows are taken by powers of two, so "
        "memory grows by steps with the micro-batch"
    ),
    Sentence(
        "the optimizer is the one asked for; the trainer's own default is adamw-fused since PyTorch 2.8"
    ),
    Sentence(
        "the optimizer is the one asked for; the trainer's own default is adamw-fused since PyTorch 2.8; 16-bit "
        "weights train under autocast, SFTConfig's default"
    ),
    Sentence(
        "torch.compile finds no graph breaks; its kernels are those of Inductor, and models of transformers run "
        "without a cache of keys and values (use_cache=False)"
    ),
    Sentence("Measured points: one line for the whole step, with accumulation or without."),
    Sentence("What is constant is drawn as buffers: weights, gradients and states cannot be told apart."),
    Sentence(
        "Overhead is {bytes} bytes from {points} measured points; nothing else was changed by them.",
        bytes="",
        points="",
    ),
    Sentence("The 8-bit AdamW's memory is computed from its bytes per parameter."),
    Sentence(
        "Memory that the communication library takes for itself (NCCL: some hundred MiB) is not counted."
    ),
    Sentence("What is reserved beyond what is allocated is taken to be the share it is on one GPU."),
    Sentence(
        "What is reserved beyond what is allocated is taken to be the share it is on one GPU, and the streams in which "
        "FSDP gathers and reduces have pools of their own."
    ),
)

#: What a trace calls blocks that repeat: "model.layers (32 blocks)", of which a model may have two kinds.
_BLOCKS = Sentence("{name} ({count} blocks)", name="", count="")
_BOTH = Sentence("{one} and {other}", one="", other="")


def understood(text: str) -> str:
    """The sentence that a text was made from; the text itself where it is none of ours."""
    if isinstance(text, Sentence):
        return text
    for sentence, pattern in _patterns():
        if found := pattern.fullmatch(text):
            params: dict[str, object] = dict(found.groupdict())
            if "blocks" in params:
                params["blocks"] = _blocks(str(params["blocks"]))
            return Sentence(sentence.template, **params)
    return text


def _blocks(text: str) -> str:
    """ "encoder.block (11 blocks) and decoder.block (11 blocks)" in words of other languages."""
    one, between, other = text.partition(" and ")
    if between:
        return Sentence(_BOTH.template, one=_blocks(one), other=_blocks(other))
    found = _pattern(_BLOCKS.template).fullmatch(text)
    return Sentence(_BLOCKS.template, name=found["name"], count=int(found["count"])) if found else text


@cache
def _patterns() -> tuple[tuple[Sentence, re.Pattern[str]], ...]:
    return tuple((sentence, _pattern(sentence.template)) for sentence in KNOWN)


@cache
def _pattern(template: str) -> re.Pattern[str]:
    """What a template's texts look like."""
    parts = (
        re.escape(text) + (f"(?P<{name}>.+)" if name else "")
        for text, name, *_ in Formatter().parse(template)
    )
    return re.compile("".join(parts))
