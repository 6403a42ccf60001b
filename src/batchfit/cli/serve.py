"""`batchfit serve`: the web app."""

from __future__ import annotations

import click


@click.command(
    epilog="\b\nExamples:\n  batchfit serve\n  batchfit serve --port 9000 --public-url https://example.org"
)
@click.option("--host", default="127.0.0.1", show_default=True, help="The address to listen on.")
@click.option(
    "--port", default=8000, show_default=True, type=click.IntRange(0, 65535), help="0 takes a free one."
)
@click.option(
    "--public-url",
    metavar="URL",
    help="Where people reach the app, if it stands behind another server; links start with it.",
)
def command(host: str, port: int, public_url: str | None) -> None:
    """Serve the web app: every calculator as a page, an embed and JSON."""
    try:
        import uvicorn

        from batchfit.web.app import create_app
    except ModuleNotFoundError as missing:
        raise click.ClickException(f"the web app needs {missing.name}: install batchfit[web]") from None
    if public_url and not public_url.startswith(("http://", "https://")):
        raise click.BadParameter(
            f"must start with http:// or https://; you gave {public_url}", param_hint="--public-url"
        )
    app = create_app(public_url=public_url, origin=f"http://{host}:{port}")
    uvicorn.run(app, host=host, port=port, server_header=False)
