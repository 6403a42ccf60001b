"""What a model's samples are called: images for a model that sees, audio clips for one that hears, samples for any
other. A profile's setting `samples` says which; every sentence that counts them takes its words from here."""

from __future__ import annotations

from dataclasses import dataclass, replace

from batchfit.profile import MemoryProfile
from batchfit.sentences import Counted, Sentence

#: The setting of a profile, and its values where samples have a name of their own.
SETTING = "samples"
IMAGES = "images"
AUDIO = "audio"


@dataclass(frozen=True, slots=True)
class Samples:
    """A kind of samples in words: alone as a unit, counted, as a rate, and one beyond what there is."""

    unit: Sentence
    one: Counted
    each: Sentence
    one_more: Sentence

    def counted(self, number: int) -> Counted:
        """So many of them."""
        return replace(self.one, number=number)


ANY = Samples(
    Sentence("Samples"),
    Counted("{n} sample", "{n} samples", 1),
    Sentence("per sample"),
    Sentence("one more sample"),
)
_KINDS = {
    IMAGES: Samples(
        Sentence("Images"),
        Counted("{n} image", "{n} images", 1),
        Sentence("per image"),
        Sentence("one more image"),
    ),
    AUDIO: Samples(
        Sentence("Audio clips"),
        Counted("{n} audio clip", "{n} audio clips", 1),
        Sentence("per audio clip"),
        Sentence("one more audio clip"),
    ),
}


def samples_of(profile: MemoryProfile) -> Samples:
    """What the samples of a profile's model are."""
    said = profile.settings.get(SETTING)
    return _KINDS.get(said, ANY) if isinstance(said, str) else ANY
