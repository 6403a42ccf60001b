"""The `--lang` option that commands for people share."""

from __future__ import annotations

import click

from batchfit.languages import SOURCE, languages


def lang_option() -> click.Option:
    """`--lang TAG`: the language of the answer, and how numbers are read and written."""
    return click.Option(
        ["--lang"],
        type=click.Choice(languages(), case_sensitive=False),
        metavar="TAG",
        default=SOURCE,
        show_default=True,
        help="Language of the answer, and how numbers are read and written; an unknown one is answered with the list.",
    )
