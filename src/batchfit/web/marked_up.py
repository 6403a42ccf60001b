"""Sentences as HTML: pieces of programs in them are marked as code."""

from __future__ import annotations

from markupsafe import Markup, escape

from batchfit.languages import translate
from batchfit.sentences import Code, Sentence, said


def marked_up(sentence: Sentence, lang: str) -> Markup:
    """A sentence in a language."""
    params = {name: _param(value, lang) for name, value in sentence.params.items()}
    return escape(translate(sentence.template, lang)).format(**params)


def _param(value: object, lang: str) -> Markup:
    return (
        Markup("<code>{}</code>").format(str(value)) if isinstance(value, Code) else escape(said(value, lang))
    )
