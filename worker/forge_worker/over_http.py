"""The transport over HTTP: the worker has nothing but a URL and a token."""

from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import partial
from urllib.parse import urlsplit

import structlog

from forge_worker.agent.agent import Agent
from forge_worker.link import Link
from forge_worker.queue.http.gateway import HttpGateway
from forge_worker.queue.http.hints import HttpHints
from forge_worker.queue.http.session import Session
from forge_worker.queue.http.store import HttpStore
from forge_worker.queue.servers import Servers
from forge_worker.queue.tls import Tls
from forge_worker.settings.settings import WorkerSettings

LOOPBACK = {"localhost", "127.0.0.1", "::1"}

log = structlog.get_logger(__name__)


@contextmanager
def transport(settings: WorkerSettings) -> Iterator[Link]:
    """Prepare to speak to the servers; the first request is the agent's registration.

    Raises:
        CertificatesUnusable: the file of certificates is none.
    """
    tls = Tls(settings.tls_ca, verify=not settings.insecure_skip_verify).context()
    for url in settings.url:
        _warn_in_the_clear(url)
    servers = Servers(settings.url, longest_pause_s=settings.reconnect_limit_s)
    with (
        closing(Session(servers, settings.worker_token, tls)) as session,
        closing(HttpStore(session, tls)) as store,
    ):
        gateway = HttpGateway(session)
        yield Link(gateway, store.of, partial(_hints, session, gateway))


@contextmanager
def _hints(session: Session, gateway: HttpGateway, agent: Agent) -> Iterator[None]:
    def work() -> None:
        gateway.new_work()
        agent.claimer.wake()

    hints = HttpHints(session, work=work, asked=agent.keeper.wake)
    hints.start()
    try:
        yield
    finally:
        hints.end()


def _warn_in_the_clear(url: str) -> None:
    parts = urlsplit(url)
    if parts.scheme == "http" and parts.hostname not in LOOPBACK:
        log.warning("the worker's token travels unencrypted; use https", url=url)
