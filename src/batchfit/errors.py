"""What a person is told when a value cannot be used: a sentence in their language, and the parts it is made of."""

from __future__ import annotations


class BadInput(ValueError):
    """A value a person gave cannot be used.

    `template` is an English sentence with `{placeholders}`; it is also the key under which the catalogues
    hold its translations, and the page's JavaScript fills in the same one. `params` are the values put in:
    numbers stay numbers, so that each language can format them.
    """

    def __init__(self, field: str, template: str, **params: object) -> None:
        super().__init__(field, template, params)
        self.field = field
        self.template = template
        self.params = params

    @property
    def reason(self) -> str:
        """The sentence in English, without the field's name: 'must be a whole number ...; you typed 2.5'."""
        return self.template.format(
            **{k: f"{v:,}" if isinstance(v, int) else v for k, v in self.params.items()}
        )

    def __str__(self) -> str:
        return f"{self.field}: {self.reason}"
