"""Out-of-memory messages: real ones read as a person reads them, and what is advised computed from their numbers."""

import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from batchfit.errors import BadInput
from batchfit.gpus import find_gpu
from batchfit.oom import Advice, OutOfMemory, advise, read_log, read_oom
from batchfit.oom.meaning import notes, parts, sentence

CASES: list[dict[str, Any]] = json.loads((Path(__file__).parent / "cases" / "oom.json").read_text("utf-8"))[
    "cases"
]
BY_SOURCE = {case["source"]: case for case in CASES}
# PyTorch's format_size divides by 1024, also where it writes GB.
UNITS = {"bytes": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "MB": 2**20, "GB": 2**30}
SIZES = (
    "requested",
    "capacity",
    "free",
    "limit",
    "allocated",
    "unallocated",
    "private_pools",
    "process",
    "outside",
)


def size(printed: str) -> int:
    number, unit = printed.split(" ")
    return int((Decimal(number) * UNITS[unit]).to_integral_value())


def read(source: str) -> OutOfMemory:
    return read_oom(BY_SOURCE[source]["text"])


def actions(message: OutOfMemory) -> str:
    return " / ".join(advice.action for advice in advise(message))


def advice(message: OutOfMemory, start: str) -> Advice:
    return next(one for one in advise(message) if one.action.startswith(start))


def test_there_are_enough_wordings() -> None:
    assert len(CASES) >= 25
    assert {case["says"]["backend"] for case in CASES} == {"CUDA", "HIP", "XPU", "NPU", "MPS", "CPU"}
    assert len({case["says"]["origin"] for case in CASES}) >= 8


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["source"])
def test_a_real_message_is_read_as_it_stands(case: dict[str, Any]) -> None:
    message, says = read_oom(case["text"]), case["says"]
    expected = {name: size(says[name]) if name in says else None for name in SIZES}
    if "reserved" in says:
        expected["unallocated"] = size(says["reserved"]) - size(says["allocated"])
    assert {name: getattr(message, name) for name in SIZES} == expected
    for name in ("origin", "backend", "device", "rank", "activity", "tensor", "where", "setting"):
        assert getattr(message, name) == says.get(name), name
    assert message.overflow == says.get("overflow", False)
    assert dict(message.others) == {int(pid): size(held) for pid, held in says.get("others", {}).items()}


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["source"])
def test_every_real_message_gets_a_sentence_and_a_way_on(case: dict[str, Any]) -> None:
    message = read_oom(case["text"])
    assert sentence(message).endswith(".")
    assert "None" not in sentence(message) + " ".join(notes(message))
    assert advise(message)
    held = sum(part.size for part in parts(message))
    if message.capacity and not message.limited and not message.spilled:
        # Printed sizes are rounded; the parts never add up to more than the card.
        assert held <= message.capacity + 8 * 2**20


# --- what the numbers mean ----------------------------------------------------------------------------------


def test_fragmentation_is_named_and_comes_first() -> None:
    message = read("Lightning-AI/litgpt#303")
    assert message.fragmented
    assert "8.65 GiB lay unused" in sentence(message)
    first = advise(message)[0]
    assert first.commands == ("export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True",)
    assert first.frees == size("8.65 GiB")


def test_the_setting_is_the_one_that_the_message_names() -> None:
    text = BY_SOURCE["Lightning-AI/litgpt#303"]["text"]
    for name in ("PYTORCH_HIP_ALLOC_CONF", "PYTORCH_ALLOC_CONF"):
        message = read_oom(text.replace("PYTORCH_CUDA_ALLOC_CONF", name))
        assert advise(message)[0].commands == (f"export {name}=expandable_segments:True",)


def test_a_little_unused_memory_is_not_fragmentation() -> None:
    message = read("pytorch/pytorch#16417, comment of 2024-03-13")
    assert not message.fragmented
    assert "10.94 MiB too few" in sentence(message)
    assert "not much further" in advice(message, "Let PyTorch's allocator").why


def test_the_context_is_what_the_process_holds_beside_pytorch() -> None:
    message = read("3DTopia/OpenLRM#42")
    assert message.context == pytest.approx((19.49 - 19.10) * 2**30 - 76.80 * 2**20, abs=2)


def test_other_processes_are_freed_first() -> None:
    message = read("3DTopia/OpenLRM#42")
    assert message.elsewhere == size("2.31 GiB")
    first = advise(message)[0]
    assert first.action == "Free the 2.31 GiB that other processes hold"
    assert "kill 130544  # once you know what they are" in first.commands
    assert "would have been enough" not in first.why
    small = read_oom(BY_SOURCE["3DTopia/OpenLRM#42"]["text"].replace("16.88 GiB", "2.88 GiB"))
    assert "would have been enough" in advise(small)[0].why


def test_memory_that_no_process_is_listed_for() -> None:
    # 23.65 - 1.66 free - 20.81 of this process
    message = read("kerrj/lerf#73")
    assert message.elsewhere == pytest.approx(1.18 * 2**30, abs=2**20)
    assert read("Lightning-AI/litgpt#303").elsewhere == 0


def test_in_a_container_the_process_finds_itself_among_the_others() -> None:
    message = read("QwenLM/Qwen3#678")
    assert (message.process, message.others) == (size("23.63 GiB"), ())
    assert message.context == pytest.approx((23.63 - 20.93 - 2.33) * 2**30, abs=3)


def test_contexts_of_other_ranks_are_told_from_other_programs() -> None:
    message = read("OEvortex/unsloth#20")
    first = advise(message)[0]
    assert first.action == "Let each process use its own GPU only: 7 others opened a context on this one"
    assert "set_device" in first.settings[0]
    assert first.frees == 7 * size("540.00 MiB")
    assert "Free the" not in actions(message)
    # Beside a real program they are still told apart.
    assert "3 others opened a context" in actions(read("public repository, deepspeed notes"))


def test_the_context_in_the_catalogue_is_the_smallest_seen() -> None:
    """Where the catalogue of GPUs says what a context takes, these messages are among its evidence."""
    hopper = {held for _, held in read("OEvortex/unsloth#20").others}
    assert {find_gpu("h100-80gb").context_bytes} == hopper
    ampere = find_gpu("rtx-3090").context_bytes
    assert ampere is not None
    assert ampere <= min(held for _, held in read("public repository, deepspeed notes").others)
    assert ampere <= (read("3DTopia/OpenLRM#42").context or 0)


def test_a_limit_is_not_a_full_card() -> None:
    message = read("ROCm/TheRock#2118")
    assert message.limited
    assert sentence(message).startswith(
        "This process reached its limit of 1.05 GiB, although 244.7 GiB of GPU 0"
    )
    assert "Raise the limit" in actions(message)
    assert "take a GPU" not in actions(message)
    assert "other processes" not in actions(message)


def test_a_request_larger_than_the_card() -> None:
    message = read("wxian3/NeuroLens#2")
    assert message.impossible
    assert "larger than all of" in sentence(message)
    assert advise(message)[0].action.startswith("Find the one tensor of 55.57 GiB")
    assert "expandable_segments" not in str(advise(message))


@pytest.mark.parametrize("source", ["3DTopia/Phidias-Diffusion#8", "NVIDIA/nccl#1284"])
def test_an_absurd_request_is_a_wrong_shape(source: str) -> None:
    assert advise(read(source))[0].action == "Look for a wrong shape or a wrong size first"


def test_a_refusal_with_room_is_explained() -> None:
    message = read("pytorch/pytorch#59778")
    assert message.refused_with_room
    assert "although it reports 3.03 GiB free of 6 GiB" in sentence(message)
    assert notes(message)[0].startswith("The driver counts free memory in all pieces together.")


def test_memory_that_windows_moved_to_the_computer() -> None:
    message = read("huggingface/meshgen#7")
    assert message.spilled
    assert "5.98 GiB into the computer's memory" in advice(message, "Count on the GPU's own memory").why


def test_unsigned_underflow_means_unknown() -> None:
    text = BY_SOURCE["3DTopia/OpenLRM#42"]["text"].replace(
        "process has 19.49 GiB", "process has 17179869184.00 GiB"
    )
    message = read_oom(text)
    assert message.process is None
    assert read("AIFSH/ComfyUI-ChatTTS#9").limit is None


def test_a_mac_is_known_by_its_limit() -> None:
    message = read("Comfy-Org/ComfyUI#7372")
    assert {gpu.marketed_gb for gpu in message.gpus()} == {16}
    assert "on this Mac of 16 GB" in sentence(message)
    assert "PYTORCH_MPS_HIGH_WATERMARK_RATIO=0.0" in str(advise(message))
    assert "17.35 GiB outside PyTorch" in actions(read("Comfy-Org/ComfyUI#7440"))


@pytest.mark.parametrize(
    ("source", "ids"),
    [
        ("Lightning-AI/litgpt#303", ["rtx-3090"]),
        ("Tongyi-MAI/Z-Image#103", ["rx-7900-xtx"]),
        ("intel/intel-extension-for-pytorch#846", ["arc-a770"]),
        ("public repository, RTX A6000 notes", ["rtx-6000-ada"]),
        ("ROCm/TheRock#1054", []),
    ],
)
def test_the_card_is_known_by_its_capacity(source: str, ids: list[str]) -> None:
    assert [gpu.id for gpu in read(source).gpus()] == ids


def test_a_card_that_the_log_names_is_that_card() -> None:
    text = BY_SOURCE["kerrj/lerf#73"]["text"]
    assert len(read_oom(text).gpus()) == 3
    assert [gpu.id for gpu in read_oom(f"GPU: NVIDIA GeForce RTX 4090\n{text}").gpus()] == ["rtx-4090"]


def test_a_capacity_of_no_card_is_said() -> None:
    text = BY_SOURCE["Lightning-AI/litgpt#303"]["text"].replace("23.70 GiB", "19.62 GiB")
    assert "No card of the catalogue reports 19.62 GiB" in notes(read_oom(text))[-1]


def test_a_larger_card_is_found_in_the_catalogue() -> None:
    message = read("modelscope/ms-swift#2044")
    # 47.50 GiB and 6.84 GiB more
    assert "at least 54.34 GiB to use: a100-80gb" in actions(message)


# --- what the step was doing --------------------------------------------------------------------------------

MESSAGE = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.15 GiB "
    "of which 1.00 GiB is free. Including non-PyTorch memory, this process has 78.10 GiB memory in use. Of the "
    "allocated memory 77.00 GiB is allocated by PyTorch, and 600.00 MiB is reserved by PyTorch but unallocated."
)


def traceback(*innermost: tuple[str, int, str, str]) -> str:
    frames = [("/home/me/train.py", 67, "<module>", "trainer.train()"), *innermost]
    shown = "".join(
        f'  File "{file}", line {line}, in {name}\n    {code}\n' for file, line, name, code in frames
    )
    return f"Traceback (most recent call last):\n{shown}{MESSAGE}\n"


TORCH = "/usr/lib/python3.11/site-packages/torch"
TRANSFORMERS = "/usr/lib/python3.11/site-packages/transformers"


@pytest.mark.parametrize(
    ("frame", "activity", "tensor"),
    [
        (
            (f"{TORCH}/optim/adam.py", 120, "_init_group", 'state["exp_avg"] = torch.zeros_like('),
            "optimizer step",
            "optimizer state",
        ),
        (
            (f"{TORCH}/optim/adamw.py", 606, "_multi_tensor_adamw", "torch._foreach_sqrt(x)"),
            "optimizer step",
            "optimizer temporaries",
        ),
        ((f"{TORCH}/optim/sgd.py", 80, "step", "loss = closure()"), "optimizer step", None),
        (
            (f"{TORCH}/nn/utils/clip_grad.py", 60, "clip_grad_norm_", "norms.extend("),
            "gradient clipping",
            None,
        ),
        ((f"{TORCH}/_tensor.py", 626, "backward", "torch.autograd.backward("), "backward", None),
        (
            (f"{TORCH}/nn/functional.py", 3029, "cross_entropy", "return torch._C._nn.cross_entropy_loss("),
            "forward",
            "logits",
        ),
        (
            (
                f"{TRANSFORMERS}/models/gpt2/modeling_gpt2.py",
                55,
                "eager_attention_forward",
                "attn_weights = torch.matmul(q, k)",
            ),
            "forward",
            "attention",
        ),
        (
            (f"{TORCH}/nn/modules/linear.py", 125, "forward", "return F.linear(input, self.weight)"),
            "forward",
            None,
        ),
        ((f"{TORCH}/nn/modules/module.py", 1326, "convert", "return t.to("), "model load", None),
        (
            (f"{TRANSFORMERS}/trainer.py", 3800, "evaluation_loop", "logits = self.gather(logits)"),
            "evaluation",
            None,
        ),
    ],
)
def test_the_traceback_shows_what_the_step_was_doing(
    frame: tuple[str, int, str, str], activity: str, tensor: str | None
) -> None:
    message = read_oom(traceback(frame))
    assert (message.activity, message.tensor, message.where) == (activity, tensor, "train.py:67")


def test_forward_within_an_evaluation_is_an_evaluation() -> None:
    message = read_oom(
        traceback(
            (f"{TRANSFORMERS}/trainer.py", 3800, "evaluation_loop", "self.prediction_step("),
            (f"{TORCH}/nn/modules/linear.py", 125, "forward", "return F.linear("),
        )
    )
    assert message.activity == "evaluation"
    assert "per_device_eval_batch_size=1" in str(advise(message))
    assert "micro-batch" not in actions(message)


def test_other_ways_of_printing_a_traceback() -> None:
    rich = (
        "│ C:\\kohya_ss\\venv\\lib\\site-packages\\torch\\optim\\adamw.py:566 in _multi_tensor_adamw               │\n"
        "│   565 │   │   │   │   torch._foreach_div_(exp_avg_sq_sqrt, bias_correction2_sqrt)                │\n"
        "│ ❱ 566 │   │   │   │   denom = torch._foreach_add(exp_avg_sq_sqrt, eps)                           │\n"
    )
    assert read_oom(rich + MESSAGE).tensor == "optimizer temporaries"
    ipython = "~/train.py in step(batch)\n     66     loss = model(batch)\n---> 67     loss.backward()\n     68 \n\n"
    message = read_oom(ipython + MESSAGE)
    assert (message.activity, message.where) == ("backward", "train.py:67")


def test_the_optimizer_is_not_helped_by_a_smaller_batch() -> None:
    message = read_oom(traceback((f"{TORCH}/optim/adam.py", 120, "_init_group", "torch.zeros_like(p)")))
    assert "in the optimizer step" in sentence(message)
    assert "micro-batch" not in actions(message)
    assert "8 bits" in actions(message)
    temporaries = read("huggingface/trl#2776")
    assert "fused optimizer" in actions(temporaries)


def test_loading_a_model_is_not_helped_by_a_smaller_batch() -> None:
    message = read_oom(traceback((f"{TORCH}/nn/modules/module.py", 1326, "convert", "return t.to(")))
    assert "while the model was being loaded" in sentence(message)
    assert "micro-batch" not in actions(message)
    assert "16 bits" in actions(message)


def test_logits_and_attention_have_their_own_way_out() -> None:
    logits = read_oom(traceback((f"{TORCH}/nn/functional.py", 1, "cross_entropy", "x")))
    assert "whole logits" in actions(logits)
    attention = read_oom(traceback((f"{TORCH}/x.py", 1, "eager_attention_forward", "x")))
    assert "does not write its scores" in actions(attention)


# --- accumulation keeps the effective batch size ------------------------------------------------------------


@pytest.mark.parametrize(
    ("log", "micro_batch_and_steps"),
    [
        ("per_device_train_batch_size=8, gradient_accumulation_steps=4", (4, 8)),
        ("  Instantaneous batch size per device = 8\n  Gradient Accumulation steps = 1\n", (4, 2)),
        ('"train_micro_batch_size_per_gpu": 6, "gradient_accumulation_steps": 5', (3, 10)),
        ("per_device_train_batch_size: 3", (1, 3)),
    ],
)
def test_halving_the_micro_batch_keeps_the_effective_batch(
    log: str, micro_batch_and_steps: tuple[int, int]
) -> None:
    half, double = micro_batch_and_steps
    action = f"Set the micro-batch size to {half} and the gradient accumulation steps to {double}"
    assert action in actions(read_oom(f"{log}\n{MESSAGE}"))


def test_a_log_that_does_not_state_the_batch() -> None:
    assert "Halve the micro-batch size and double the gradient accumulation steps" in actions(
        read_oom(MESSAGE)
    )


def test_the_last_setting_in_the_log_counts() -> None:
    message = read_oom(f"per_device_train_batch_size=8\nper_device_train_batch_size=2\n{MESSAGE}")
    assert message.micro_batch == 2
    assert "stays 2 × 1 = 1 × 2 = 2" in advice(message, "Set the micro-batch size to 1").why


def test_a_micro_batch_of_one_is_not_halved() -> None:
    assert "micro-batch" not in actions(read_oom(f"per_device_train_batch_size=1\n{MESSAGE}"))


# --- logs as they are ---------------------------------------------------------------------------------------


def test_several_ranks_at_once() -> None:
    lines = [traceback((f"{TORCH}/_tensor.py", 626, "backward", "x")).splitlines() for _ in range(3)]
    interleaved = "\n".join(
        f"[rank{rank}]: {line.replace('GPU 0', f'GPU {rank}')}"
        for same_line in zip(*lines, strict=True)
        for rank, line in enumerate(same_line)
    )
    messages = read_log(interleaved)
    assert [(message.rank, message.device, message.activity) for message in messages] == [
        (0, 0, "backward"),
        (1, 1, "backward"),
        (2, 2, "backward"),
    ]


@pytest.mark.parametrize(
    "line",
    [
        "[rank3]: {}",
        "[Rank 3] 2024-05-13 10:11:12,345 ERROR {}",
        "2024-05-13T10:11:12.345Z [rank3]: {}",
        "3: {}",
        "[default3]:{}".replace("default", "rank"),
        "  4%|▍         | 10/247 [00:12<04:41,  1.19s/it][rank3]: {}",
    ],
)
def test_ranks_are_known_however_they_are_written(line: str) -> None:
    message = read_oom(line.format(MESSAGE))
    assert (message.rank, message.requested) == (3, 2 * 2**30)


@pytest.mark.parametrize(
    "text",
    [
        f"\x1b[31m\x1b[1m{MESSAGE}\x1b[0m",
        f"\r 10%|█         | 1/10 [00:01<00:09]\r 20%|██        | 2/10 [00:02<00:08]\r{MESSAGE}\r\n",
        MESSAGE.replace(" of which ", "\n of which\n").replace("Of the ", "\r\nOf the\r\n"),
        f"> {MESSAGE}",
        f"(RayTrainWorker pid=4242, ip=10.0.0.7) {MESSAGE}",
        f"2024-05-13 10:11:12,345 - ERROR - {MESSAGE}",
        MESSAGE.replace("77.00 GiB", "7\n7.00 GiB"),
    ],
)
def test_colours_bars_line_breaks_and_prefixes_change_nothing(text: str) -> None:
    plain, message = read_oom(MESSAGE), read_oom(text)
    for name in SIZES:
        assert getattr(message, name) == getattr(plain, name), name


def test_a_message_that_is_printed_twice_counts_once() -> None:
    text = f"{MESSAGE}\n\nDuring handling of the above exception, another exception occurred:\n\n{MESSAGE}\n"
    assert len(read_log(text)) == 1
    assert len(read_log(f"[rank0]: {MESSAGE}\nsummary: {MESSAGE}")) == 1


def test_a_message_deep_in_a_long_log_is_found_with_its_traceback_and_settings() -> None:
    noise = "INFO step 1 loss 2.345 memory allocated 71.2 GiB\n" * 20_000
    text = f"per_device_train_batch_size=8\n{noise}{traceback((f'{TORCH}/_tensor.py', 626, 'backward', 'x'))}{noise}"
    message = read_oom(text)
    assert (message.requested, message.activity, message.micro_batch) == (2 * 2**30, "backward", 8)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "  \n",
        "loss 2.3",
        "KeyError: 'memory'",
        "CUDA error: device-side assert triggered",
        "Killed time: 3 s",
    ],
)
def test_what_is_no_such_message_says_what_was_looked_for(text: str) -> None:
    with pytest.raises(BadInput, match="looked for PyTorch's 'out of memory"):
        read_log(text)


@pytest.mark.parametrize("name", ["cublas", "cuda", "nccl", "bitsandbytes", "jax", "tensorflow"])
def test_messages_without_numbers_say_where_to_look(name: str) -> None:
    message = read_oom(next(case["text"] for case in CASES if case["says"]["origin"] == name))
    assert advise(message)[0].action == "See what holds the GPU just before the error"


def test_the_hosts_memory_is_not_the_gpus() -> None:
    for source in ("pytorch/pytorch#5434, title", "tensorflow/models#6450, title"):
        message = read(source)
        assert "computer's own memory ran out" in sentence(message)
        assert [one.action for one in advise(message)] == ["Free memory of the computer, not of the GPU"]
    assert read_oom("RuntimeError: DataLoader worker (pid 77) is killed by signal: Killed.").origin == "host"


def test_json_has_sizes_as_integers_in_fields_that_say_bytes() -> None:
    said = read("OEvortex/unsloth#20").as_json()
    assert said["requested_bytes"] == 2 * 2**20
    assert said["others"] == [
        {"pid": pid, "bytes": 540 * 2**20} for pid, _ in read("OEvortex/unsloth#20").others
    ]
    assert "text" not in said
