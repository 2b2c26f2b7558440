"""Submit over HTTP, through the servers' proxies in turn."""

from __future__ import annotations

import ssl
from itertools import cycle
from typing import TYPE_CHECKING

import httpx

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from forge_schema.model.spec import JobSpec

ANSWER_S = 10.0


class HttpSubmitter:
    """A client with an admin's key."""

    def __init__(self, urls: Sequence[str], key: str, authority: Path | None = None) -> None:
        self._urls = cycle(urls)
        self._trusted = ssl.create_default_context(cafile=authority)
        self._headers = {"Authorization": f"Bearer {key}"}

    def submit(self, specs: Sequence[JobSpec]) -> list[int]:
        """Submit jobs and return their ids.

        Raises:
            httpx.HTTPError: no answer, or an error answer.
        """
        jobs = [spec.model_dump(mode="json", exclude_defaults=True) for spec in specs]
        url = f"{next(self._urls)}/api/v1/queue/submit"
        answer = httpx.post(
            url,
            json={"jobs": jobs},
            headers=self._headers,
            timeout=ANSWER_S,
            verify=self._trusted,
        )
        answer.raise_for_status()
        ids: list[int] = answer.json()["job_ids"]
        return ids
