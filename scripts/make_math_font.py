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

PACKAGE = "@fontsource/stix-two-math@5.3.0"
FONT = "package/files/stix-two-math-latin-400-normal.woff2"
STATIC = Path(__file__).resolve().parents[1] / "src/batchfit/web/static"

# ASCII, the signs that batchfit.emit sets, and the slanted Latin and Greek letters that browsers put for a one-letter
# <mi>. Of the layout features only ssty, the forms of small scripts: formulas are not kerned.
CHARACTERS = (
    "U+0020-007E,U+00A0,U+00B7,U+00D7,U+2026,U+2032,U+2061,U+2208,U+2211,U+2212,U+221A,U+221E,U+2227,U+2228,"
    "U+2248,U+2260,U+2264,U+2265,U+22C5,U+2308-230B,"
    "U+1D434-1D467,U+210E,U+1D6E2-1D71B"
)


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        packed = subprocess.run(
            ["npm", "pack", "--silent", PACKAGE], cwd=folder, check=True, capture_output=True, text=True
        )
        with tarfile.open(Path(folder) / packed.stdout.strip()) as archive:
            archive.extractall(folder, filter="data")
        subset.main(
            [
                str(Path(folder) / FONT),
                f"--unicodes={CHARACTERS}",
                "--flavor=woff2",
                "--layout-features=ssty",
                "--no-hinting",
                "--name-IDs=*",
                f"--output-file={STATIC / 'math.woff2'}",
            ]
        )
        (STATIC / "math.LICENSE.txt").write_bytes((Path(folder) / "package/LICENSE").read_bytes())


if __name__ == "__main__":
    main()
