"""The colours of memory, the same parts in the same order in the terminal, the page, the notebook and the docs; and
those of pages around it."""

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

#: The kinds of layers that activations belong to where a profile tells, in the order they are always drawn, each in a
#: shade of its own of the colour of activations. Neighbours differ in lightness.
KIND_COLOURS = {
    "attention": "#9c4f12",
    "MLP": "#e08c36",
    "convolution": "#7f3f12",
    "norm": "#f4c088",
    "embedding": "#806012",
    "residual stream": "#fbdcae",
    "logits and loss": "#c8781f",
    "other": "#ead0b3",
}
KINDS = tuple(KIND_COLOURS)


def style_of(kind: str) -> str:
    """A kind as a name that style sheets and columns of tables can have: "logits-and-loss"."""
    return kind.lower().replace(" ", "-")


#: Every part's and kind's colour by the name that style sheets have for it.
FILLS = COLOURS | {style_of(kind): colour for kind, colour in KIND_COLOURS.items()}

#: "free" where the page is dark; the other parts look the same on both.
FREE_IN_THE_DARK = "#3a424a"

#: The colours of pages and pictures, on light paper and on dark. `answer` means "your answer", as cyan does in the
#: terminal; `wrong` means "does not fit, or wrong".
INTERFACE = {
    "paper": ("#ffffff", "#14181b"),
    "panel": ("#f5f7f7", "#1b2125"),
    "ink": ("#1a2024", "#e7ebee"),
    "muted": ("#566168", "#a0abb3"),
    "line": ("#d7dde0", "#343d43"),
    "edge": ("#7d8a92", "#7a8790"),
    "answer": ("#00696b", "#5fd0cb"),
    "on-answer": ("#ffffff", "#0d1a1a"),
    "wrong": ("#a8321f", "#ff9c86"),
}

#: What `answer` may be instead, where a page that embeds a calculator has its own accent.
ACCENTS = {
    "teal": INTERFACE["answer"],
    "blue": ("#1a5fb4", "#8ab8ff"),
    "violet": ("#6a45b0", "#c3a9ff"),
    "magenta": ("#a02472", "#ff9ad5"),
    "green": ("#1f6b2e", "#86d594"),
    "graphite": ("#3d464c", "#c9d1d6"),
}
