"""Links as QR codes, for paper: the page a person holds leads back to the values on it."""

from __future__ import annotations

import io

from markupsafe import Markup

#: Modules of quiet zone around a code, as ISO/IEC 18004 asks for.
BORDER = 4

#: The pattern laid over a code: a chequerboard. A reader takes any of the eight, and to try which is the most even for
#: a link takes longer than all the rest of its code.
_MASK = 0


def qr_svg(url: str) -> str:
    """The link as an SVG element without style. Errors in 7 % of it can be corrected, in more where that takes no
    larger code."""
    import segno

    file = io.BytesIO()
    code = segno.make_qr(url, error="l", boost_error=True, mask=_MASK)
    code.save(
        file,
        kind="svg",
        border=BORDER,
        light="#fff",
        xmldecl=False,
        nl=False,
        omitsize=True,
        svgclass=None,
        lineclass=None,
    )
    return file.getvalue().decode()


def inline_qr(url: str) -> Markup:
    """The same, to stand in a page."""
    return Markup(qr_svg(url))
