"""Which of our languages a request asks for: by its path, or by the browser's Accept-Language."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache

from babel.core import get_global
from starlette.exceptions import HTTPException
from starlette.requests import Request


def preferred(accept_language: str, available: Sequence[str]) -> str:
    """The available language that suits best; the first one where none does.

    A tag means its most likely script, so that "zh-TW" and "zh-HK" are zh-Hant and "zh" is zh-Hans; a script or
    region that we lack gives way to the same language in another one.
    """
    wanted: list[tuple[float, int, str]] = []
    for part in accept_language.split(",")[:20]:
        found = re.fullmatch(
            r"\s*([A-Za-z]{1,8}(?:-[A-Za-z0-9]{1,8})*)\s*(?:;\s*q\s*=\s*([01](?:\.\d{0,3})?))?\s*", part
        )
        if found and (quality := float(found[2] or 1)) > 0:
            wanted.append((-quality, len(wanted), found[1]))
    for _, _, tag in sorted(wanted):
        language, script = _likely(tag)
        same = [ours for ours in available if _likely(ours)[0] == language]
        if same:
            return next((ours for ours in same if _likely(ours)[1] == script), same[0])
    return available[0]


def language_in_path(request: Request, available: Sequence[str]) -> str:
    """The language that stands first in a path. Raises HTTPException 404 where it is none of ours."""
    lang: str = request.path_params["lang"]
    if lang not in available:
        raise HTTPException(404)
    return lang


@lru_cache(maxsize=256)
def _likely(tag: str) -> tuple[str, str]:
    """Language and most likely script of a tag, in lower case."""
    language, *rest = tag.lower().split("-")
    script = next((part for part in rest if len(part) == 4 and part.isalpha()), "")
    region = next((part for part in rest if len(part) in (2, 3)), "")
    if not script:
        likely = get_global("likely_subtags")
        full = likely.get(f"{language}_{region.upper()}") or likely.get(language, "")
        script = full.split("_")[1].lower() if full.count("_") == 2 else ""
    return language, script
