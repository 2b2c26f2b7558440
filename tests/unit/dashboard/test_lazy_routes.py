"""Routes that are analysed when they are first asked for, and not before."""

from __future__ import annotations

import httpx
from fastapi import APIRouter, Depends, FastAPI
from forge_functions.lazy_routes import Later, LazyRouter, include
from support.http.server import listening


def test_only_the_route_that_is_asked_for_is_made() -> None:
    made: list[str] = []

    def making(name: str) -> Later:
        def make() -> object:
            made.append(name)
            return lambda: name

        return Later(name, make)

    router, app, asked = LazyRouter(prefix="/v1"), FastAPI(), []
    for name in ("one", "two"):
        router.add_api_route(f"/{name}", making(name))
    include(app.router, router, dependencies=[Depends(lambda: asked.append(1))])
    with listening(app) as url:
        assert httpx.get(f"{url}/v1/three").status_code == 404
        assert httpx.post(f"{url}/v1/one").status_code == 405
        assert made == []
        answers = [httpx.get(f"{url}/v1/two").json() for _ in range(2)]
    assert answers == ["two", "two"]
    assert made == ["two"]
    # The options of the inclusion are the route's.
    assert len(asked) == 2
    assert {*app.openapi()["paths"]} == {"/v1/one", "/v1/two"}


def test_a_router_in_another_keeps_the_prefixes_of_both() -> None:
    inner, outer, app = LazyRouter(), APIRouter(prefix="/v1", tags=["outer"]), FastAPI()
    inner.add_api_route("/one", lambda: "one", name="one")
    include(outer, inner)
    app.include_router(outer)
    with listening(app) as url:
        assert httpx.get(f"{url}/v1/one").json() == "one"
