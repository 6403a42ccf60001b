"""A formula is a plain Python function: from its source come its JavaScript, MathML and worked examples."""

from batchfit.emit.errors import EmitError
from batchfit.emit.javascript import to_javascript, to_module

__all__ = ["EmitError", "to_javascript", "to_module"]
