"""Static files under names that hold a hash of their content, so that a browser may keep them for ever."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from importlib import resources
from pathlib import PurePosixPath

import rcssmin
import rjsmin

from batchfit.web.stored import Stored

#: What a file name's ending means. A file with another ending does not get served.
_TYPES = {
    ".css": "text/css",
    ".js": "text/javascript",
    ".svg": "image/svg+xml",
    ".woff2": "font/woff2",
    ".txt": "text/plain",
}
# Modules and fonts are asked for across origins where the page is an embed in a sandboxed frame.
_HEADERS = {"Cache-Control": "public, max-age=31536000, immutable", "Access-Control-Allow-Origin": "*"}


def packaged() -> dict[str, bytes]:
    """The static files that ship with the package, by name."""
    folder = resources.files("batchfit.web").joinpath("static")
    return {
        entry.name: entry.read_bytes()
        for entry in folder.iterdir()
        if entry.is_file() and PurePosixPath(entry.name).suffix in _TYPES
    }


class Assets:
    """Files by name, each served under a hashed address.

    A file that mentions another one ("./numbers.js" in an import, url("math.woff2") in a style sheet) is
    rewritten to mention its hashed name; so a change anywhere gives new names to all that depend on it.
    """

    def __init__(self, files: Mapping[str, bytes]) -> None:
        self._files = files
        self._hashed: dict[str, str] = {}
        self._stored: dict[str, Stored] = {}
        for name in files:
            self._add(name, ())

    def url(self, name: str) -> str:
        """The address of a file. Raises KeyError where there is none of that name."""
        return f"/static/{self._hashed[name]}"

    def with_imports(self, *names: str) -> list[str]:
        """The addresses of scripts and of all they import, to be loaded at once, not one after another. What they
        load later, by `import("./x.js")`, is not among them."""
        found = list(names)
        for script in found:
            found += [other for other in self._mentioned(script, later=False) if other not in found]
        return [self.url(script) for script in found]

    def get(self, hashed: str) -> Stored | None:
        """The file of that hashed name."""
        return self._stored.get(hashed)

    def _mentioned(self, name: str, *, later: bool = True) -> list[str]:
        if not name.endswith((".js", ".css")):
            return []
        text = self._files[name].decode()
        found = re.findall(r"""(?:from|import)\s*["']\./([^"']+)["']|url\(["']?([\w.-]+)["']?\)""", text)
        deferred = re.findall(r"""import\(["']\./([^"']+)["']\)""", text) if later else []
        return [a or b for a, b in found] + deferred

    def _prepared(self, name: str) -> bytes:
        """A file without the comments and the spaces that are for those who read the source."""
        body = self._files[name]
        minify = {".js": rjsmin.jsmin, ".css": rcssmin.cssmin}.get(PurePosixPath(name).suffix)
        return bytes(minify(body)) if minify else body

    def _add(self, name: str, above: tuple[str, ...]) -> str:
        if name in self._hashed:
            return self._hashed[name]
        if name in above:
            raise ValueError(f"static files mention each other in a circle: {' -> '.join((*above, name))}")
        body = self._prepared(name)
        for other in self._mentioned(name):
            pattern = rb"""(["'(](?:\./)?)%s(["')])""" % re.escape(other.encode())
            body = re.sub(pattern, rb"\g<1>%s\g<2>" % self._add(other, (*above, name)).encode(), body)
        path = PurePosixPath(name)
        hashed = f"{path.stem}.{hashlib.sha256(body).hexdigest()[:10]}{path.suffix}"
        self._hashed[name] = hashed
        self._stored[hashed] = Stored(body, _TYPES[path.suffix], headers=_HEADERS).prepare()
        return hashed
