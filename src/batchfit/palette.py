"""The colours of memory: the same parts, in the same order, in the terminal, the page, the notebook and the docs."""

from __future__ import annotations

#: What memory holds, in the order it is always drawn. A line of a profile is the sum of these.
PARTS = ("weights", "gradients", "optimizer", "activations", "buffers", "overhead")

#: Each part's colour, and "free" for what is left of a card. Told apart in lightness too, not by hue alone.
COLOURS = {
    "weights": "#1f4e79",
    "gradients": "#2e86ab",
    "optimizer": "#7fb8d4",
    "activations": "#d9822b",
    "buffers": "#8a6fa8",
    "overhead": "#7a7f87",
    "free": "#e6e8eb",
}
