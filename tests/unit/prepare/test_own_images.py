"""Which of Forge's images make room, by what engines really say of their sizes and last uses."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any, cast

import pytest
from docker.errors import APIError
from forge_worker.runners.images import own_images

MB = 1_000_000
NEVER = "0001-01-01T00:00:00Z"
Step = tuple[str, int]
BASE: list[Step] = [("ADD rootfs.tar", 80 * MB), ('CMD ["sh"]', 0)]


def tagged(hours_ago: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() - hours_ago * 3600))


Made = dict[str, tuple[list[str], str, list[Step]]]


@dataclass
class Api:
    """Answers as an engine does. `made` has names, the last tag, and the steps, oldest first."""

    made: Made
    packed: float = 1.0
    in_use: tuple[str, ...] = ()

    def images(self) -> list[dict[str, Any]]:
        return [
            {"Id": it, "RepoTags": names, "Size": int(_size(steps) * self.packed),
             # From version 25 on, an image shares all it has with the steps of its build.
             "SharedSize": _size(steps)}
            for it, (names, _, steps) in self.made.items()
        ]  # fmt: skip

    def history(self, image: str) -> list[dict[str, Any]]:
        said = [{"Created": 1, "CreatedBy": by, "Size": size} for by, size in self.made[image][2]]
        return said[::-1]

    def remove_image(self, name: str) -> None:
        image = next(it for it, (names, _, _) in self.made.items() if name in names)
        names, _, _ = self.made[image]
        if image in self.in_use and len(names) == 1:
            raise APIError("conflict: unable to delete, a container uses it")
        names.remove(name)
        if not names:
            del self.made[image]


def _size(steps: list[Step]) -> int:
    return sum(size for _, size in steps)


class Client:
    """A client of docker-py, as far as it is asked."""

    def __init__(self, made: Made, **engine: Any) -> None:  # noqa: ANN401  fields of all types
        self.api = Api(made, **engine)
        self.images = self

    def get(self, image: str) -> Any:  # noqa: ANN401  it has only what is asked for
        at = self.api.made[image][1]
        return type("Found", (), {"attrs": {"Metadata": {"LastTagTime": at}}})


def removed(client: Client, max_mb: float) -> list[str]:
    return own_images.make_room(cast("Any", client), int(max_mb * MB))


def built(name: str, at: str, mb: int) -> tuple[list[str], str, list[Step]]:
    return [name], at, [*BASE, (f"RUN make {name}", mb * MB), ("LABEL forge.image=build", 0)]


def three(prefix: str = "") -> Made:
    """Return three of ours, the middle one the oldest, on a base that is not."""
    return {
        "base": ([f"{prefix}debian:12"], NEVER, BASE),
        "a": built(f"{prefix}forge-build:a", tagged(2), 30),
        "b": built(f"{prefix}forge-build:b", tagged(3), 20),
        "c": built(f"{prefix}forge-tar:c", tagged(1), 10),
    }


@pytest.mark.parametrize("prefix", ["", "docker.io/library/", "localhost/"])
@pytest.mark.parametrize(
    ("limit", "gone"), [(60, ""), (59, "b"), (40, "b"), (39, "ba"), (9, "bac"), (0, "bac")]
)
def test_what_a_removal_frees_is_counted_and_not_the_base(
    prefix: str, limit: int, gone: str
) -> None:
    client = Client(three(prefix))
    assert [name[-1] for name in removed(client, limit)] == list(gone)
    assert "base" in client.api.made


def test_layers_of_several_of_ours_are_counted_once_and_freed_by_the_last() -> None:
    common: list[Step] = [*BASE, ("RUN pip install", 50 * MB)]
    made: Made = {
        "a": (["forge-build:a"], tagged(3), [*common, ("COPY a", 10 * MB)]),
        "b": (["forge-build:b"], tagged(2), [*common, ("COPY b", 10 * MB)]),
    }
    # Nobody else has the base: 80 + 50 + 10 + 10.
    assert removed(Client(dict(made)), 150) == []
    made = {it: (list(names), at, steps) for it, (names, at, steps) in made.items()}
    assert removed(Client(made), 149) == ["forge-build:a"]


def test_packed_layers_of_containerd_count_too() -> None:
    """Docker 26.1.5 with that store: 227,274,752 bytes in the history, 438,814,041 as a size."""
    assert removed(Client(three(), packed=2.0), 119) == ["forge-build:b"]
    assert removed(Client(three(), packed=2.0), 120) == []


def test_image_that_somebody_named_too_or_uses_frees_nothing() -> None:
    made = three()
    made["b"][0].append("mine:kept")
    client = Client(made, in_use=("a",))
    assert removed(client, 1) == ["forge-build:b", "forge-tar:c"]
    assert made["b"][0] == ["mine:kept"]
    assert made["a"][0] == ["forge-build:a"]


@pytest.mark.parametrize(
    ("before", "after", "marked"),
    [
        (2, 0, False),
        # Docker 28.5.2 with containerd's store keeps the time of a name's first tag.
        (2, 2, True),
        (None, None, True),
    ],
)
def test_use_is_marked_where_the_engine_does_not_note_it(
    before: int | None,
    after: int | None,
    marked: bool,  # noqa: FBT001  a case
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    at = {None: NEVER, 2: tagged(2), 0: tagged(0)}
    tags: list[str] = []
    found = {"Id": "a", "RepoTags": ["forge-tar:a", "forge-tar:a.used-1"],
             "Metadata": {"LastTagTime": at[before]}}  # fmt: skip
    monkeypatch.setattr(own_images, "find", lambda *_: found)
    client = Client({"a": (["forge-tar:a", "forge-tar:a.used-1"], at[after], BASE)})
    client.api.tag = lambda *words: tags.append(":".join(words[1:]))  # type: ignore[attr-defined]  # only here
    assert own_images.kept(cast("Any", client), "forge-tar:a") is found
    assert tags[0] == "forge-tar:a"
    assert [bool(own_images.USED.search(tag)) for tag in tags[1:]] == [True] * marked
    left = ["forge-tar:a"] if marked else ["forge-tar:a", "forge-tar:a.used-1"]
    assert client.api.made["a"][0] == left


def test_last_use_is_a_name_where_the_engine_keeps_no_time() -> None:
    """Podman 5.4.2 says of every image that it was never tagged."""
    now = int(time.time())
    made = three("docker.io/library/")
    for it, hours in (("a", 2), ("b", 3), ("c", 1)):
        names, _, steps = made[it]
        mark = f"{names[0]}.used-{1000 * (now - hours * 3600)}"
        made[it] = ([*names, mark], NEVER, steps)
    client = Client(made, in_use=("b",))
    gone = removed(client, 35)
    assert [name.partition(":")[2][0] for name in gone] == ["b", "a", "a"]
    # One that a container uses keeps the name by which it is found.
    assert made["b"][0] == ["docker.io/library/forge-build:b"]
