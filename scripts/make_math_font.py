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
from fontTools.ttLib.scaleUpem import scale_upem

PACKAGE = "@fontsource/stix-two-math@5.3.0"
FONT = "package/files/stix-two-math-latin-400-normal.woff2"
STATIC = Path(__file__).resolve().parents[1] / "src/batchfit/web/static"

# What formulas are set in, and no more, since every page loads it (a test looks whether a page has other characters):
# digits and signs, upright letters of functions, of "if" and "otherwise", and of units, and the slanted letters that
# browsers put for a one-letter <mi>: all Latin ones, and those Greek ones that stand for something here.
CHARACTERS = (
    "U+0020,U+0028-0039,U+003B-003E,U+007B,U+00A0,U+00B7,U+00D7,U+2026,U+202F,U+2061,"
    "U+2211,U+2212,U+221A,U+221E,U+2227,U+2228,U+2260,U+2264,U+2265,U+22C5,U+2308-230B,"
    "U+0061-007A,U+0042,U+0047,U+004B,U+004D,U+0050,U+0054,"
    "U+1D434-1D467,U+210E"
)
GREEK = "ΓΔαβγδηκπρστφω"
# What stretches around formulas, and of its sizes every second one: what is larger than all of them is put together.
STRETCHED, EVERY = "(){⌈⌉⌊⌋√", 2
# Steps of the grid that outlines are drawn on, for the height of a line. Printed with 600 dots an inch, a line of 12
# points has 100 dots: 400 steps show no less than the font's own 1000.
STEPS = 400


def slanted(greek: str) -> str:
    """The mathematical italic letter of a Greek one."""
    return chr(ord(greek) - ord("α") + 0x1D6FC if greek >= "α" else ord(greek) - ord("Α") + 0x1D6E2)


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
    # Where accents go, and how far scripts may move into the corners of letters: no formula here has the one, no
    # browser does the other.
    font["MATH"].table.MathGlyphInfo.MathTopAccentAttachment = None
    font["MATH"].table.MathGlyphInfo.MathKernInfo = None
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
                f"--text={''.join(map(slanted, GREEK))}",
                "--flavor=woff2",
                "--layout-features=",
                "--no-hinting",
                "--name-IDs=*",
                "--drop-tables+=GDEF,GPOS,GSUB,gasp",
                f"--output-file={STATIC / 'math.woff2'}",
            ]
        )
        font = TTFont(STATIC / "math.woff2")
        scale_upem(font, STEPS)
        font.save(STATIC / "math.woff2")
        (STATIC / "math.LICENSE.txt").write_bytes((Path(folder) / "package/LICENSE").read_bytes())


if __name__ == "__main__":
    main()
