"""Files and metrics of a job by name or pattern; what there is not is refused."""

from __future__ import annotations

import pytest
from forge_client.errors import ClientError, ExitCode
from forge_client.results.names import chosen_files, require_metrics
from forge_schema.model.stored import Artifact

FILES = [
    Artifact(path=path, key=path, bytes=1, sha256="0" * 64, attempt=1)
    for path in ("best-1.pt", "best-2.pt", "log.txt", "sub/best-3.pt", "sub/x/y.txt")
]


@pytest.mark.parametrize(
    ("only", "numbers"),
    [
        (["best-1.pt"], [0]),
        (["best*.pt"], [0, 1, 3]),
        (["./sub/"], [3, 4]),
        (["sub/*.pt"], [3]),
        (["log.txt", "log*"], [2]),
    ],
)
def test_paths_patterns_and_folders_choose_files(only: list[str], numbers: list[int]) -> None:
    assert chosen_files(7, FILES, only) == [FILES[number] for number in numbers]


def test_what_is_not_there_is_refused_with_what_there_is() -> None:
    with pytest.raises(ClientError, match=r"job 7 has no artifact 'lag\.txt'") as refused:
        chosen_files(7, FILES, ["log.txt", "lag.txt"])
    assert (refused.value.hint, refused.value.exit_code) == ("it has log.txt", ExitCode.NOT_FOUND)
    require_metrics(7, ["loss"], ["loss", "acc"])
    with pytest.raises(ClientError, match="job 7 has written no metric 'los'") as refused:
        require_metrics(7, ["los"], ["loss", "acc"])
    assert refused.value.hint == "it has written loss"
