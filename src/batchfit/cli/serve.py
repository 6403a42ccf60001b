"""`batchfit serve`: the web app."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from batchfit.web.store import Store

EXAMPLES = """\b
Examples:
  batchfit serve
  batchfit serve --port 9000 --public-url https://fit.example.org
  batchfit serve --no-feedback
  batchfit serve --database-url postgresql://batchfit@db.example.org/batchfit
"""


@click.command(epilog=EXAMPLES)
@click.option("--host", default="127.0.0.1", show_default=True, help="The address to listen on.")
@click.option(
    "--port", default=8000, show_default=True, type=click.IntRange(0, 65535), help="0 takes a free one."
)
@click.option(
    "--public-url",
    metavar="URL",
    help="Where people reach the app, if it stands behind another server; links start with it.",
)
@click.option(
    "--allow-trace",
    is_flag=True,
    help="Trace the config.json that people give, in processes of their own with limits on time and memory.",
)
@click.option(
    "--feedback/--no-feedback", default=True, show_default=True, help="Ask on pages whether they helped."
)
@click.option(
    "--database-url",
    metavar="URL",
    help="Where feedback is kept, sqlite:///FILE or postgresql://USER@HOST/NAME; else a file in your data folder.",
)
@click.option(
    "--rate-limit",
    metavar="RATE",
    default="1200/minute",  # sliders ask a few times a second; a school's class shares an address
    show_default=True,
    help="How many answers each address may have computed; none sets no limit.",
)
@click.option(
    "--feedback-rate-limit",
    metavar="RATE",
    default="60/hour",  # the whole class has its say, and nobody fills the disk
    show_default=True,
    help="How often each address may send feedback; none sets no limit.",
)
def command(
    host: str,
    port: int,
    public_url: str | None,
    feedback: bool,
    database_url: str | None,
    rate_limit: str,
    feedback_rate_limit: str,
    allow_trace: bool,
) -> None:
    """Serve the web app: every calculator as a page, an embed and JSON."""
    try:
        import uvicorn

        from batchfit.web.app import create_app
        from batchfit.web.limits import Rates
    except ModuleNotFoundError as missing:
        raise click.ClickException(_install(missing)) from None
    if public_url and not public_url.startswith(("http://", "https://")):
        raise click.BadParameter(
            f"must start with http:// or https://; you gave {public_url}", param_hint="--public-url"
        )
    if database_url and not feedback:
        raise click.UsageError("--database-url is where feedback is kept: leave it out with --no-feedback")
    app = create_app(
        public_url=public_url,
        origin=f"http://{host}:{port}",
        feedback=_store(database_url) if feedback else None,
        rates=Rates(answers=rate_limit, feedback=feedback_rate_limit),
        allow_trace=allow_trace,
    )
    uvicorn.run(app, host=host, port=port, server_header=False)


def _store(database_url: str | None) -> Store:
    try:
        from batchfit.web.store import Store, default_url
    except ModuleNotFoundError as missing:
        raise click.ClickException(f"{_install(missing)}, or serve with --no-feedback") from None
    store = Store(database_url or default_url())
    click.echo(f"Feedback is kept in {store.place}", err=True)
    return store


def _install(missing: ModuleNotFoundError) -> str:
    return f"the web app needs {missing.name}: install batchfit[web]"
