"""The palette as style sheets: pages, embeds and pictures have their colours from nowhere else."""

from __future__ import annotations

from batchfit.palette import ACCENTS, COLOURS, FREE_IN_THE_DARK, INTERFACE, KIND_COLOURS, style_of


def variables() -> str:
    """Every colour as a variable of its name, for style.css to begin with: "--answer", "--activations"."""
    interface = [f"--{name}:{_both(*pair)}" for name, pair in INTERFACE.items()]
    memory = [
        f"--{part}:{_both(colour, FREE_IN_THE_DARK) if part == 'free' else colour}"
        for part, colour in COLOURS.items()
    ]
    return f":root{{{';'.join([*interface, *memory])}}}\n"


def parts_of_plans() -> str:
    """The fills of memory's parts in pictures of plans, for plan.css and shelf.css to begin with."""
    parts = "".join(f"svg.bf rect.{part}{{fill:var(--{part})}}" for part in COLOURS)
    kinds = "".join(f"svg.bf rect.{style_of(kind)}{{fill:{each}}}" for kind, each in KIND_COLOURS.items())
    return f"{parts}{kinds}\n"


def accents() -> str:
    """The accents that an embed can be given, for embed.css to begin with."""
    return (
        "".join(f'[data-accent="{name}"]{{--answer:{_both(*pair)}}}' for name, pair in ACCENTS.items()) + "\n"
    )


def before_sheets() -> dict[str, str]:
    """What stands before each style sheet, by its file."""
    return {
        "style.css": variables(),
        "plan.css": parts_of_plans(),
        "shelf.css": parts_of_plans(),
        "embed.css": accents(),
    }


def _both(light: str, dark: str) -> str:
    return f"light-dark({light},{dark})"
