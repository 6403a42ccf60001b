#!/usr/bin/env python3
"""Makes src/batchfit/web/static/math.woff2, the font of the pages' formulas, and its licence file.

It is STIX Two Math (SIL Open Font License 1.1), cut down to the characters and the stretched brackets and
roots that formulas here can use. Needs fonttools and brotli, and npm to fetch the font:

    pip install fonttools brotli
    scripts/make_math_font.py
"""

import subprocess
import tarfile
import tempfile
from pathlib import Path

from fontTools import subset
from fontTools.ttLib import TTFont

PACKAGE = "@fontsource/stix-two-math@5.3.0"
FONT = "package/files/stix-two-math-latin-400-normal.woff2"
STATIC = Path(__file__).resolve().parents[1] / "src/batchfit/web/static"

# Letters, digits and the signs that batchfit.emit sets, and the slanted Latin and Greek letters that browsers put for a
# one-letter <mi>. No layout features: formulas are not kerned.
CHARACTERS = (
    "U+0020,U+0025,U+0028-005B,U+005D,U+0061-007E,U+00A0,U+00B7,U+00D7,U+2026,U+2032,U+2061,U+2208,U+2211,U+2212,"
    "U+221A,U+221E,U+2227,U+2228,U+2248,U+2260,U+2264,U+2265,U+22C5,U+2308-230B,"
    "U+1D434-1D467,U+210E,U+1D6E4,U+1D6E5,U+1D6F4,U+1D6FC-1D714"
)
# What stretches around formulas, and of its sizes every second one: what is larger than all of them is put together.
STRETCHED, EVERY = "(){⌈⌉⌊⌋√", 2


def with_fewer_sizes(path: Path) -> None:
    """Leaves out of a font what no formula here needs stretched."""
    font = TTFont(path)
    letters, variants = font.getBestCmap(), font["MATH"].table.MathVariants
    variants.HorizGlyphCoverage, variants.HorizGlyphConstruction, variants.HorizGlyphCount = None, [], 0
    wanted = {letters[ord(sign)] for sign in STRETCHED}
    constructed = zip(variants.VertGlyphCoverage.glyphs, variants.VertGlyphConstruction, strict=True)
    kept = [(glyph, construction) for glyph, construction in constructed if glyph in wanted]
    for _, construction in kept:
        construction.MathGlyphVariantRecord = construction.MathGlyphVariantRecord[::EVERY]
        construction.VariantCount = len(construction.MathGlyphVariantRecord)
    variants.VertGlyphCoverage.glyphs = [glyph for glyph, _ in kept]
    variants.VertGlyphConstruction = [construction for _, construction in kept]
    variants.VertGlyphCount = len(kept)
    font.save(path)


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        packed = subprocess.run(
            ["npm", "pack", "--silent", PACKAGE], cwd=folder, check=True, capture_output=True, text=True
        )
        with tarfile.open(Path(folder) / packed.stdout.strip()) as archive:
            archive.extractall(folder, filter="data")
        with_fewer_sizes(Path(folder) / FONT)
        subset.main(
            [
                str(Path(folder) / FONT),
                f"--unicodes={CHARACTERS}",
                "--flavor=woff2",
                "--layout-features=",
                "--no-hinting",
                "--name-IDs=*",
                f"--output-file={STATIC / 'math.woff2'}",
            ]
        )
        (STATIC / "math.LICENSE.txt").write_bytes((Path(folder) / "package/LICENSE").read_bytes())


if __name__ == "__main__":
    main()
