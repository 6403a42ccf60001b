"""Tokens of a data set, and the steps and passes that they make."""

from __future__ import annotations

import math

#: What a data set's size is known in, as numbers that a formula can tell apart.
BYTES, WORDS, DOCUMENTS = range(3)


def bytes_per_token_of(bytes_per_token: float, language_bytes_per_token: float) -> float:
    """Bytes of UTF-8 per token: the person's own where known (above 0), else the language's."""
    return bytes_per_token if bytes_per_token > 0 else language_bytes_per_token


def tokens_per_word_of(tokens_per_word: float, language_tokens_per_word: float) -> float:
    """Tokens per word: the person's own where known (above 0), else the language's."""
    return tokens_per_word if tokens_per_word > 0 else language_tokens_per_word


def dataset_tokens(
    measure: int,
    text_size: int,
    words: int,
    documents: int,
    words_per_document: float,
    text_ratio: float,
    word_ratio: float,
) -> int:
    """Tokens of a data set known by its bytes of UTF-8, its words or its documents.

    `text_ratio` is in bytes per token, `word_ratio` in tokens per word.
    """
    if measure == BYTES:
        return round(text_size / text_ratio)
    if measure == WORDS:
        return round(words * word_ratio)
    return round(documents * words_per_document * word_ratio)


def sequences(dataset_tokens: int, sequence_length: int) -> int:
    """Sequences that the tokens fill when they are packed end to end, the last one padded."""
    return math.ceil(dataset_tokens / sequence_length)


def training_tokens(dataset_tokens: int, epochs: float) -> int:
    """Tokens that a run over the data set sees in all, each pass counted."""
    return round(dataset_tokens * epochs)


def optimizer_steps(training_tokens: float, tokens_per_step: int) -> int:
    """Optimizer steps to see that many tokens, the last one possibly short."""
    return math.ceil(training_tokens / tokens_per_step)


def epochs_of(training_tokens: float, dataset_tokens: float) -> float:
    """Passes over a data set that make so many training tokens."""
    return training_tokens / dataset_tokens


def epochs_for_budget(token_budget: int, dataset_tokens: int) -> float:
    """Passes over a data set that make the tokens one wants to train on."""
    return epochs_of(token_budget, dataset_tokens)


def budget_given(token_budget: int) -> bool:
    """Whether there is a number of tokens that one wants to train on."""
    return token_budget > 0
