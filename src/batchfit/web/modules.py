"""Small modules of a script joined in one file: fewer requests, and what each would be compressed with alone."""

from __future__ import annotations

import re
from collections.abc import Mapping

_IMPORT = re.compile(r'^import (.+?) from "\./([^"]+)";\n', re.MULTILINE)
_DECLARED = re.compile(r"^(?:export )?(?:async )?(?:const|let|function\*?|class) (\w+)", re.MULTILINE)
#: What would not mean the same in one file: other names for what is imported or exported, names not found above.
_UNFIT = re.compile(r"\bimport \{.* as |^export (?:default|\{|\*)|^(?:const|let) [\[{]", re.MULTILINE)


def joined(files: Mapping[str, bytes], name: str, parts: tuple[str, ...]) -> dict[str, bytes]:
    """The files with `parts` in one of that name, and with imports of any part turned to it. A part stands after those
    that it imports. Raises ValueError where the parts cannot stand in one file."""
    texts = {part: files[part].decode() for part in parts}
    declared: dict[str, str] = {}
    body: list[str] = []
    for part, text in texts.items():
        if found := _UNFIT.search(text):
            raise ValueError(f"{part} cannot be joined with others: {found[0].strip()}")
        for each in _DECLARED.findall(text):
            if each in declared:
                raise ValueError(f"{declared[each]} and {part} both declare {each}")
            declared[each] = part
        for found in _IMPORT.finditer(text):
            if found[2] in parts[len(body) :]:
                raise ValueError(f"{part} imports {found[2]}, which does not stand before it")
            if found[2] in parts and not found[1].startswith("{"):
                raise ValueError(f"{part} cannot be joined with others: {found[0].strip()}")
        body.append(_IMPORT.sub(lambda found: "" if found[2] in parts else found[0], text))
    others = {other: content for other, content in files.items() if other not in parts}
    mentioned = re.compile(r'(from ")\./(?:{})"'.format("|".join(map(re.escape, parts))))
    for other, content in others.items():
        if other.endswith(".js"):
            others[other] = mentioned.sub(rf'\1./{name}"', content.decode()).encode()
    return others | {name: "\n".join(body).encode()}
