"""Runs operations on meta tensors, which have shapes and no data: the GPU we pretend to have.

PyTorch's fake tensors do the same at some 50 to 100 microseconds an operation, and many meta kernels are written
in Python and cost several hundred. A training step repeats few distinct operations (twelve alike layers, each
twice a step), so the shape of a result is looked up when the same operation has met the same inputs before.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import torch

from batchfit.trace.errors import DataNeeded
from batchfit.trace.known import KnownValues, discrete, small
from batchfit.trace.meta_kernels import META_KERNELS

_META = torch.device("meta")
_CPU = torch.device("cpu")

#: What is remembered of one result: a new tensor's size, stride and type, or nothing for None.
_Spec = tuple[torch.Size, tuple[int, ...], torch.dtype] | None

_Operator = Any

#: Operators that read lengths from tensors, the same taking them as lists, and where they stand among the arguments.
_LENGTHS = {torch.ops.aten._ctc_loss.Tensor: (torch.ops.aten._ctc_loss.default, (2, 3))}

#: Operators that take a tensor for its shape alone, and what they fill with: a number, or that argument.
_FILLS: dict[_Operator, Callable[[tuple[Any, ...]], Any]] = {
    torch.ops.aten.ones_like.default: lambda args: 1,
    torch.ops.aten.zeros_like.default: lambda args: 0,
    torch.ops.aten.full_like.default: lambda args: args[1],
    torch.ops.aten.new_ones.default: lambda args: 1,
    torch.ops.aten.new_zeros.default: lambda args: 0,
    torch.ops.aten.new_full.default: lambda args: args[2],
}

#: Which of the last dimension's numbers are the highest depends on data; those picked are taken to be spread evenly, as
#: tokens over a layer's experts are when these are balanced.
_PICKS = torch.ops.aten.topk.default

#: Types of an index that picks where it is true.
_MASKS = (torch.bool, torch.uint8)


#: Their schemas say that results are new, and they are not.
_SECRET_VIEWS = ("_unsafe_view", "_reshape_alias", "lift")

#: These write to their argument's shape, so the result is not described by what went in.
_RESHAPED_IN_PLACE = (
    "resize",
    "set_",
    "as_strided_",
    "t_",
    "transpose_",
    "swapaxes_",
    "swapdims_",
    "squeeze_",
    "unsqueeze_",
    "detach_",
)


class _Traits:
    """What an operator's schema says of its results."""

    __slots__ = (
        "data_dependent",
        "device_at",
        "fresh",
        "in_place",
        "listed",
        "random",
        "spoilt",
        "tensor_free",
        "written",
    )

    def __init__(self, func: _Operator) -> None:
        schema = func._schema
        returns = schema.returns
        tags = func.tags
        self.data_dependent = (
            torch.Tag.dynamic_output_shape in tags or torch.Tag.data_dependent_output in tags
        )
        self.random = torch.Tag.nondeterministic_seeded in tags
        self.written = [i for i, a in enumerate(schema.arguments) if a.alias_info and a.alias_info.is_write]
        #: The written arguments whose values are not known afterwards. A trace takes gradients to be finite.
        self.spoilt = [i for i in self.written if schema.arguments[i].name != "found_inf"]
        name = func.name().removeprefix("aten::")
        kinds = {str(r.type) for r in returns}
        #: Every result is a new tensor. `_unsafe_view` and its like say so too, but are views in truth.
        self.fresh = (
            (kinds <= {"Tensor", "Optional[Tensor]"} or kinds == {"List[Tensor]"})
            and all(r.alias_info is None for r in returns)
            and not name.startswith(_SECRET_VIEWS)
        )
        #: The result is a list of tensors.
        self.listed = kinds == {"List[Tensor]"}
        #: The result is the first argument, written to.
        self.in_place = (
            len(returns) == 1
            and self.written == [0]
            and returns[0].alias_info is not None
            and not name.startswith(_RESHAPED_IN_PLACE)
        )
        self.device_at = next((i for i, a in enumerate(schema.arguments) if a.name == "device"), None)
        self.tensor_free = not any("Tensor" in str(a.type) for a in schema.arguments)


class MetaDevice:
    """Executes operations as a device would, on meta tensors.

    Tensors made without a device, or on the CPU, stay real and belong to the host, as with a true GPU; with
    `host=False` (a run on the CPU, where there is nothing else) they are on the device too. Small tensors that
    follow from known values are known.
    """

    def __init__(self, host: bool = True) -> None:
        self.host = host
        self.known = KnownValues()
        self._traits: dict[_Operator, _Traits] = {}
        self._specs: dict[tuple[Any, ...], tuple[_Spec, ...]] = {}
        #: Whether something was picked by values that are not known.
        self.picked = False
        self._has_left = False
        self._off_device = weakref.WeakSet[torch.UntypedStorage]()

    def on_device(self, tensor: torch.Tensor) -> bool:
        """Whether `tensor` is in the GPU's memory."""
        return tensor.is_meta and not (self._has_left and tensor.untyped_storage() in self._off_device)

    def bring(self, tensor: torch.Tensor) -> torch.Tensor:
        """`tensor` as it is on the device: a meta tensor of the same layout, its value known if it was and is small."""
        with torch.no_grad():
            there = torch.empty_strided(tensor.size(), tensor.stride(), dtype=tensor.dtype, device=_META)
        # A batch's floating-point numbers are examples: what follows from them is not to be relied on. But ones and
        # zeros throughout are a mask.
        if (
            small(tensor)
            and self.known.knows(tensor)
            and (discrete(tensor) or _is_mask(self.known.value(tensor)))
        ):
            self.known.learn(there, self.known.value(tensor))
        return there

    def __call__(self, func: _Operator, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        traits = self._traits.get(func)
        if traits is None:
            traits = self._traits[func] = _Traits(func)
        if traits.tensor_free:
            return self._make(func, traits, args, kwargs)
        if not self.host and kwargs.get("device") == _CPU:
            # There is no host to copy to: what is sent there stays on the device.
            kwargs = {**kwargs, "device": _META}
        tensors = _Tensors(args, kwargs)
        if tensors.real and not tensors.meta and not self._moves(func, kwargs):
            return func(*args, **kwargs)
        if tensors.real:
            args, kwargs = self._mixed(args, kwargs)
            tensors = _Tensors(args, kwargs)
        if self._follows(traits, tensors):
            return self._run_known(func, traits, args, kwargs, tensors)
        if self._has_left or self._leaves(kwargs):
            return self._on_host(func, traits, args, kwargs, tensors)
        out = self._unknown(func, traits, args, kwargs, tensors)
        if func in _FILLS and discrete(out) and small(out):
            self.known.learn(out, torch.full(out.shape, _FILLS[func](args), dtype=out.dtype, device=_CPU))
        if func is _PICKS and small(out[1]):
            self._spread(out[1], args[0])
        return out

    def _spread(self, picked: torch.Tensor, among: torch.Tensor) -> None:
        """Indices that were picked take turns."""
        self.picked = True
        turns = torch.arange(picked.numel(), device=_CPU) % among.size(-1)
        self.known.learn(picked, turns.view(picked.shape))

    def _unknown(
        self,
        func: _Operator,
        traits: _Traits,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        tensors: _Tensors,
    ) -> Any:
        if traits.spoilt and self.known:
            for index in traits.spoilt:
                self._spoil(
                    args[index] if index < len(args) else kwargs.get(func._schema.arguments[index].name)
                )
        if traits.data_dependent:
            return self._data_dependent(func, traits, args, kwargs, tensors)
        return self._run(func, traits, args, kwargs, tensors)

    def _run(
        self,
        func: _Operator,
        traits: _Traits,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        tensors: _Tensors,
    ) -> Any:
        """The operation on meta tensors alone, by memory where it can be."""
        if not (traits.fresh or traits.in_place) or not tensors.hashable:
            return func(*args, **kwargs)
        key = (func, *tensors.key)
        specs = self._specs.get(key)
        if specs is None:
            out = (META_KERNELS.get(func) or func)(*args, **kwargs)
            self._remember(key, traits, out, tensors.meta)
            return out
        if traits.in_place:
            return args[0]
        made = [
            None if s is None else torch.empty_strided(s[0], s[1], dtype=s[2], device=_META) for s in specs
        ]
        if traits.listed:
            return made
        return made[0] if len(made) == 1 else tuple(made) if made else None

    def _remember(self, key: tuple[Any, ...], traits: _Traits, out: Any, inputs: list[torch.Tensor]) -> None:
        if traits.in_place:
            self._specs[key] = ()
            return
        storages = {t.untyped_storage()._cdata for t in inputs}
        specs: list[_Spec] = []
        for result in [] if out is None else _listed(out):
            if result is None:
                specs.append(None)
                continue
            storage = result.untyped_storage()
            plain = torch.empty_strided(result.size(), result.stride(), dtype=result.dtype, device=_META)
            own = storage._cdata not in storages and result.is_meta and not result.storage_offset()
            if not own or storage.nbytes() != plain.untyped_storage().nbytes():
                return
            storages.add(storage._cdata)
            specs.append((result.size(), result.stride(), result.dtype))
        self._specs[key] = tuple(specs)

    def _make(self, func: _Operator, traits: _Traits, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """A factory: its result is on the device if it was asked for there, or if there is nothing else."""
        device = kwargs.get("device")
        if traits.device_at is None or (self.host and (device is None or device.type != "meta")):
            return func(*args, **kwargs)
        out = func(*args, **{**kwargs, "device": _META})
        if isinstance(out, torch.Tensor) and small(out) and (not traits.random or discrete(out)):
            self.known.learn(out, func(*args, **{**kwargs, "device": _CPU}))
        return out

    def _leaves(self, kwargs: dict[str, Any]) -> bool:
        """Whether the result is asked for on the host."""
        device = kwargs.get("device")
        return self.host and device is not None and device.type == "cpu"

    def _on_host(
        self,
        func: _Operator,
        traits: _Traits,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        tensors: _Tensors,
    ) -> Any:
        """An operation that copies to the host, or reads only what was copied there: its result is not counted."""
        leaves = self._leaves(kwargs)
        out = self._unknown(func, traits, args, {**kwargs, "device": _META} if leaves else kwargs, tensors)
        arrives = self._moves(func, kwargs)
        if leaves or not (arrives or any(self.on_device(t) for t in tensors.meta)):
            self._has_left = True
            self._off_device.update(t.untyped_storage() for t in _listed(out) if isinstance(t, torch.Tensor))
        return out

    def _moves(self, func: _Operator, kwargs: dict[str, Any]) -> bool:
        device = kwargs.get("device")
        return device is not None and device.type == "meta"

    def _mixed(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Real tensors among meta ones are brought over."""

        def bring(value: Any) -> Any:
            if isinstance(value, torch.Tensor) and not value.is_meta:
                return self.bring(value)
            if isinstance(value, (list, tuple)) and any(isinstance(v, torch.Tensor) for v in value):
                return type(value)(bring(v) for v in value)
            return value

        return tuple(bring(a) for a in args), {k: bring(v) for k, v in kwargs.items()}

    def _follows(self, traits: _Traits, tensors: _Tensors) -> bool:
        known = self.known
        return bool(known) and not traits.random and all(known.knows(t) for t in tensors.meta)

    def _run_known(
        self,
        func: _Operator,
        traits: _Traits,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        tensors: _Tensors,
    ) -> Any:
        """All that the operation reads is known, so what it gives is: it runs twice, for shapes and for values."""
        if traits.fresh and not traits.written and not traits.data_dependent and not self._leaves(kwargs):
            made = self._run(func, traits, args, kwargs, tensors)
            # Shapes come first: a mask of all positions against all is large, slow to work out, and not kept.
            if any(there is not None and small(there) for there in _listed(made)):
                try:
                    real = self._real(func, args, kwargs)
                except NotImplementedError:
                    return made  # CUDA has kernels that the CPU lacks, as for histograms of whole numbers
                for there, value in zip(_listed(made), _listed(real), strict=True):
                    if there is not None and small(there):
                        self.known.learn(there, value)
            return made
        real = self._real(func, args, kwargs)
        if not isinstance(real, (torch.Tensor, list, tuple)) or self._leaves(kwargs):
            return real
        if traits.data_dependent:
            return _map(self.bring, real)
        # What writes to its arguments has done so on the values; the same on the shapes.
        return self._run(func, traits, args, kwargs, tensors)

    def _real(self, func: _Operator, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """What the operation gives for the values that are known."""
        real_kwargs = {**self.known.values(kwargs)}
        if "device" in kwargs and kwargs["device"] is not None:
            real_kwargs["device"] = _CPU
        return func(*self.known.values(args), **real_kwargs)

    def _spoil(self, written: Any) -> None:
        for tensor in written if isinstance(written, (list, tuple)) else (written,):
            if isinstance(tensor, torch.Tensor):
                self.known.spoil(tensor)

    def _data_dependent(
        self,
        func: _Operator,
        traits: _Traits,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        tensors: _Tensors,
    ) -> Any:
        """The shape of the result depends on values, unless it is an index of positions, or of a mask that is known, or
        on lengths that are."""
        if func in _LENGTHS:
            func, places = _LENGTHS[func]
            return func(*(self._numbers(a) if i in places else a for i, a in enumerate(args)), **kwargs)
        if func is not torch.ops.aten.index.Tensor:
            raise DataNeeded(func.name())
        if not any(i is not None and i.dtype in _MASKS for i in args[1]):
            return self._run(func, traits, args, kwargs, tensors)
        positions = [p for index in args[1] for p in self._positions(index)]
        return func(args[0], positions, **kwargs)

    def _numbers(self, lengths: torch.Tensor) -> list[int]:
        if not self.known.knows(lengths):
            raise DataNeeded("lengths of samples")
        numbers: list[int] = self.known.value(lengths).tolist()
        return numbers

    def _positions(self, index: torch.Tensor | None) -> list[torch.Tensor | None]:
        """A mask's dimensions as positions, as indexing takes it; an index of positions as it is."""
        if index is None or index.dtype not in _MASKS:
            return [index]
        if not self.known.knows(index):
            raise DataNeeded("indexing by a mask")
        return [self.bring(p) for p in self.known.value(index).nonzero(as_tuple=True)]


class _Tensors:
    """The tensors among an operation's arguments, and what its result's shape can depend on."""

    __slots__ = ("hashable", "key", "meta", "real")

    def __init__(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self.meta: list[torch.Tensor] = []
        self.real: list[torch.Tensor] = []
        self.hashable = True
        self.key: list[Any] = []
        for value in args:
            self._add(value)
        for name, value in kwargs.items():
            self.key.append(name)
            self._add(value)

    def _add(self, value: Any) -> None:
        if isinstance(value, torch.Tensor):
            if value.is_meta:
                self.meta.append(value)
                self.key.append((value.size(), value.stride(), value.dtype))
            else:
                self.real.append(value)
        elif isinstance(value, (list, tuple)):
            self.key.append(len(value))
            for item in value:
                self._add(item)
        else:
            # 1, 1.0 and True are equal as keys and not as arguments.
            self.key.append(type(value))
            self.key.append(value)


def _is_mask(value: torch.Tensor) -> bool:
    """Whether floating-point numbers are all ones, or all zeros."""
    return bool((value == 1).all() or (value == 0).all())


def _listed(value: Any) -> list[Any]:
    return list(value) if isinstance(value, (list, tuple)) else [value]


def _map(function: Callable[[torch.Tensor], torch.Tensor], value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return function(value)
    return type(value)(_map(function, item) for item in value)
