"""Reading QR codes back, as a telephone does."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import numpy as np
import zxingcpp
from numpy.typing import NDArray

Pixels = NDArray[np.uint8]


def read(pixels: Pixels) -> list[str]:
    """The texts of the QR codes in a grey image."""
    return [
        found.text
        for found in zxingcpp.read_barcodes(pixels)
        if found.format == zxingcpp.BarcodeFormat.QRCode
    ]


def read_svg(svg: str) -> str:
    """The text of a code that is an SVG with one path of horizontal lines."""
    side = int(re.findall(r'viewBox="0 0 (\d+) \1"', svg)[0])
    (path,) = re.findall(r'<path[^>]* stroke="#000"[^>]* d="([^"]+)"', svg)
    dark = np.zeros((side, side), dtype=bool)
    x, y = 0.0, 0.0
    for command, numbers in re.findall(r"([Mmh])([-\d. ]+)", path):
        values = [float(number) for number in re.findall(r"-?[\d.]+", numbers)]
        if command == "M":
            x, y = values
        elif command == "m":
            x, y = x + values[0], y + values[1]
        else:
            dark[int(y), int(x) : int(x + values[0])] = True
            x += values[0]
    pixels = np.where(dark, 0, 255).astype(np.uint8).repeat(6, axis=0).repeat(6, axis=1)
    (text,) = read(pixels)
    return text


def read_pdf(pdf: Path) -> list[str]:
    """The texts of the codes on a document's pages."""
    subprocess.run(["pdftoppm", "-gray", "-r", "150", pdf, pdf.with_suffix("")], check=True)
    found = []
    for page in sorted(pdf.parent.glob(f"{pdf.stem}-*.pgm")):
        header = re.match(rb"P5\s+(\d+)\s+(\d+)\s+255\s", page.read_bytes())
        assert header
        width, height = int(header[1]), int(header[2])
        pixels = np.frombuffer(page.read_bytes()[header.end() :], dtype=np.uint8).reshape(height, width)
        found += read(pixels)
    return found
