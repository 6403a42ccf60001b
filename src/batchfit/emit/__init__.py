"""A formula is a plain Python function: from its source come its JavaScript, MathML and worked examples."""

from batchfit.emit.errors import EmitError
from batchfit.emit.javascript import to_javascript, to_module
from batchfit.emit.notation import Format, Quantity, Style, Symbol, english
from batchfit.emit.show import Results, to_mathml, to_text, worked_example

__all__ = [
    "EmitError",
    "Format",
    "Quantity",
    "Results",
    "Style",
    "Symbol",
    "english",
    "to_javascript",
    "to_mathml",
    "to_module",
    "to_text",
    "worked_example",
]
