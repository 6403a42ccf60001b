"""`batchfit serve`: the web app."""

from __future__ import annotations

from ipaddress import ip_network
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from batchfit.web.metrics import Metrics
    from batchfit.web.store import Store

EXAMPLES = """\b
Examples:
  batchfit serve
  batchfit serve --port 9000 --public-url https://fit.example.org --trusted-proxy 127.0.0.1
  batchfit serve --no-feedback --metrics
  batchfit serve --database-url postgresql://batchfit@db.example.org/batchfit
  batchfit serve --access-log /var/log/batchfit.log --rate-limit 300/minute
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
    "--trusted-proxy",
    "trusted_proxies",
    metavar="ADDRESS",
    multiple=True,
    envvar="FORWARDED_ALLOW_IPS",
    help="The address or network of a server in front, whose X-Forwarded-For is believed; may be repeated.",
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
@click.option(
    "--access-log",
    metavar="FILE",
    type=click.Path(dir_okay=False, path_type=Path),
    help="A file for the access log, a line of JSON for each request, instead of stderr.",
)
@click.option("--no-access-log", "quiet", is_flag=True, help="Write no access log.")
@click.option("--log-queries", is_flag=True, help="Note in the access log what people typed, too.")
@click.option("--metrics", is_flag=True, help="Show figures for Prometheus at /metrics.")
def command(
    host: str,
    port: int,
    public_url: str | None,
    trusted_proxies: tuple[str, ...],
    feedback: bool,
    database_url: str | None,
    rate_limit: str,
    feedback_rate_limit: str,
    allow_trace: bool,
    access_log: Path | None,
    quiet: bool,
    log_queries: bool,
    metrics: bool,
) -> None:
    """Serve the web app: every calculator as a page, an embed and JSON."""
    try:
        from batchfit.web.access import AccessLog
        from batchfit.web.app import create_app
        from batchfit.web.limits import Rates
        from batchfit.web.server import serve
    except ModuleNotFoundError as missing:
        raise click.ClickException(_install(missing)) from None
    if public_url and not public_url.startswith(("http://", "https://")):
        raise click.BadParameter(
            f"must start with http:// or https://; you gave {public_url}", param_hint="--public-url"
        )
    if database_url and not feedback:
        raise click.UsageError("--database-url is where feedback is kept: leave it out with --no-feedback")
    if quiet and (access_log or log_queries):
        raise click.UsageError("--no-access-log leaves nothing for --access-log or --log-queries to say")
    try:
        log = None if quiet else AccessLog(access_log, queries=log_queries)
    except OSError as error:
        message = f"cannot be written: {error.strerror}; you gave {access_log}"
        raise click.BadParameter(message, param_hint="--access-log") from None
    app = create_app(
        public_url=public_url,
        origin=f"http://{host}:{port}",
        feedback=_store(database_url) if feedback else None,
        rates=Rates(answers=rate_limit, feedback=feedback_rate_limit),
        allow_trace=allow_trace,
        log=log,
        metrics=_metrics() if metrics else None,
        ahead=True,
    )
    serve(app, host=host, port=port, trusted_proxies=_proxies(trusted_proxies))
    if log:
        log.close()


def _proxies(given: tuple[str, ...]) -> str:
    """The proxies as uvicorn takes them."""
    for proxy in given:
        try:
            if proxy != "*":
                ip_network(proxy, strict=False)
        except ValueError:
            message = (
                f"must be an address such as 10.0.0.2, a network such as 10.0.0.0/8, or *; you gave {proxy}"
            )
            raise click.BadParameter(message, param_hint="--trusted-proxy") from None
    return ",".join(given)


def _metrics() -> Metrics:
    try:
        from batchfit.web.metrics import Metrics
    except ModuleNotFoundError as missing:
        raise click.ClickException(f"--metrics needs {missing.name}: install batchfit[metrics]") from None
    return Metrics()


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
