"""What `forge doctor` looks at through a server: the way there, the server, the key."""

from collections.abc import Callable

from forge_client.errors import ClientError
from forge_client.http.patience import Passing
from forge_client.http.transport import Transport
from forge_client.records import Check, Standing, WorkerInfo


def checks(transport: Transport, workers: Callable[[], list[WorkerInfo]]) -> list[Check]:
    """Check each part by itself, so that one that fails does not hide the others."""
    try:
        answer = transport.exchange("GET", "/health")
    except Passing as failed:
        return [_failed("server", failed.error)]
    except ClientError as error:
        return [_failed("server", error)]
    del answer, workers
    return []


def _failed(name: str, error: ClientError) -> Check:
    return Check(name=name, standing=Standing.FAIL, detail=error.message, hint=error.hint)
