"""torch.compile's effect on memory: modules run as the graphs that AOTAutograd makes of them, fused as Inductor fuses.

`units` has which modules are compiled and how one's graphs are obtained, `partition` what is kept between forward and
backward, `fusion` which tensors of a graph exist at all.
"""

from batchfit.trace.compiled.units import compile_model

__all__ = ["compile_model"]
