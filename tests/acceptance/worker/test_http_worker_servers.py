"""Real workers and their servers: several of them, restarts, certificates, and what is wrong."""

from __future__ import annotations

import json
from functools import partial
from typing import TYPE_CHECKING, Any

import psycopg
from support.http.certificates import certificates
from support.http.tcp_proxy import tcp_proxy
from support.workers.http_bed import http_bed

if TYPE_CHECKING:
    from pathlib import Path

    from support.waiting import Eventually
    from support.workers.http_bed import HttpBed
    from support.workers.worker import Worker

# Long enough for a lease to outlive a server's start on a busy machine.
PATIENT_S = 30.0
WAITS = """
import os, pathlib, threading
number = 0
while not pathlib.Path("go").exists():
    number += 1
    print("line", number, flush=True)
    threading.Event().wait(0.1)
pathlib.Path(os.environ["FORGE_OUTPUT_DIR"], "lines").write_text(str(number))
"""


def let_go(made: HttpBed) -> None:
    for folder in made.root.glob("*/jobs/*/work"):
        (folder / "go").touch()


def ran_once_and_whole(made: HttpBed, job: int) -> None:
    """Check that a job ended once, and that every line of its output is stored, in order."""
    made.succeeds(job)
    assert made.reasons(job) == ["succeeded"]
    lines = int(made.artifacts(job)["lines"])
    assert made.log(job).decode().split() == [
        w for n in range(1, lines + 1) for w in ("line", str(n))
    ]


def seen(made: HttpBed) -> Any:  # noqa: ANN401  a time
    return made.registry.worker(made.ids["one"])["last_seen_at"]


def fails_again(worker: Worker, before: int) -> bool:
    return "server_unreachable" in worker.output[before:]


def heard_again(made: HttpBed, eventually: Eventually) -> None:
    before = seen(made)
    eventually(lambda: seen(made) > before)


def test_worker_moves_to_another_server_and_back_with_its_job(
    tmp_path: Path, database_url: str, eventually: Eventually
) -> None:
    with http_bed(tmp_path, database_url, servers=2, ttl_s=PATIENT_S) as made:
        first, second = made.servers
        worker = made.worker()
        job = made.script(WAITS)
        made.says(job, "line 3")
        first.kill()
        eventually(lambda: made.speaks_to(second, worker))
        heard_again(made, eventually)
        # New jobs are found through the second server, too.
        made.succeeds(made.script("print('new')"))
        first.start()
        second.kill()
        heard_again(made, eventually)
        made.succeeds(made.script("print('newer')"))
        assert made.job(job)["state"] == "running"
        let_go(made)
        ran_once_and_whole(made, job)


def test_first_server_is_preferred_again(
    tmp_path: Path, database_url: str, eventually: Eventually
) -> None:
    with http_bed(tmp_path, database_url, servers=2, ttl_s=PATIENT_S) as made:
        first, second = made.servers
        first.kill()
        worker = made.worker()
        first.start()
        eventually(lambda: made.speaks_to(first, worker))
        told = second.output.count("/api/v1/workers/heartbeat")
        for _ in range(3):
            heard_again(made, eventually)
        assert second.output.count("/api/v1/workers/heartbeat") - told <= 1


def test_server_that_is_killed_again_and_again_loses_nothing(
    tmp_path: Path, database_url: str, eventually: Eventually
) -> None:
    with http_bed(tmp_path, database_url, ttl_s=PATIENT_S) as made:
        worker = made.worker()
        job = made.script(WAITS)
        made.says(job, "line 3")
        for _ in range(3):
            made.servers[0].kill()
            eventually(partial(fails_again, worker, len(worker.output)))
            made.servers[0].start()
            heard_again(made, eventually)
        let_go(made)
        ran_once_and_whole(made, job)
        assert "Traceback" not in worker.output


LEASE_IS_OVER = """
    SELECT sweeper.ticked_at > lease.expires_at + interval '1 second' AS over
    FROM sweeper, lease
"""


def test_job_outlasts_servers_that_are_away_for_longer_than_a_lease(
    tmp_path: Path, database_url: str, eventually: Eventually
) -> None:
    with http_bed(tmp_path, database_url) as made:
        made.worker()
        job = made.script(WAITS)
        made.says(job, "line 3")
        made.servers[0].kill()
        with psycopg.connect(database_url, autocommit=True) as connection:

            def over() -> bool:
                row = connection.execute(LEASE_IS_OVER).fetchone()
                assert row is not None, "the lease was taken from a worker that found no server"
                return bool(row[0])

            eventually(over)
        made.servers[0].start()
        heard_again(made, eventually)
        assert made.job(job)["state"] == "running"
        let_go(made)
        ran_once_and_whole(made, job)


def test_job_that_ends_while_no_server_is_there_counts(
    tmp_path: Path, database_url: str, eventually: Eventually
) -> None:
    with http_bed(tmp_path, database_url, ttl_s=PATIENT_S) as made:
        made.worker()
        job = made.script(WAITS)
        made.says(job, "line 3")
        made.servers[0].kill()
        let_go(made)
        eventually(lambda: any(tmp_path.glob("one/jobs/*/output/lines")))
        made.servers[0].start()
        ran_once_and_whole(made, job)


def test_server_that_leaves_in_good_order_is_waited_for(
    tmp_path: Path, database_url: str, eventually: Eventually
) -> None:
    with http_bed(tmp_path, database_url, ttl_s=PATIENT_S) as made:
        worker = made.worker()
        job = made.script(WAITS)
        made.says(job, "line 3")
        # The stream that the worker holds open does not keep the server from leaving.
        assert made.servers[0].leave() == 0
        eventually(lambda: "server_unreachable" in worker.output)
        made.servers[0].start()
        heard_again(made, eventually)
        let_go(made)
        ran_once_and_whole(made, job)


def test_connections_that_break_all_the_time_cost_time_alone(
    tmp_path: Path, database_url: str, eventually: Eventually
) -> None:
    with (
        http_bed(tmp_path, database_url, ttl_s=PATIENT_S) as made,
        tcp_proxy(made.servers[0].url) as between,
    ):
        worker = made.worker(url=between.url)
        job = made.script(WAITS)
        made.says(job, "line 1")

        def connected_anew() -> bool:
            between.cut()
            return between.connections > 20

        eventually(connected_anew, timeout=200, every=0.1)
        let_go(made)
        ran_once_and_whole(made, job)
        assert "Traceback" not in worker.output


def test_worker_that_is_killed_and_started_again_continues_its_job(
    tmp_path: Path, database_url: str
) -> None:
    with http_bed(tmp_path, database_url, ttl_s=600, heartbeat_s=100) as made:
        patient: dict[str, Any] = {"lease_ttl_s": 600, "heartbeat_s": 100}
        first = made.worker(**patient)
        job = made.script(WAITS)
        made.says(job, "line 3")
        first.kill()
        made.worker(**patient)
        let_go(made)
        ran_once_and_whole(made, job)


def test_silent_past_its_lease_the_worker_is_told_that_it_lost(
    tmp_path: Path, database_url: str, eventually: Eventually
) -> None:
    with http_bed(tmp_path, database_url, servers=2) as made:
        # One server or the other is always up, so leases expire as usual.
        made.worker(url=made.servers[0].url)
        job = made.script(WAITS, max_losses=1)
        made.says(job, "line 3")
        made.servers[0].kill()
        eventually(lambda: made.reasons(job) == ["worker_lost"])
        assert made.job(job)["state"] == "ready"
        made.servers[0].start()
        # It gives up the first attempt and claims the job again; only that attempt counts.
        eventually(lambda: any(tmp_path.glob(f"one/jobs/{job}-2-*/work")))
        eventually(lambda: not any(tmp_path.glob(f"one/jobs/{job}-1-*")))
        let_go(made)
        made.succeeds(job)
        assert made.reasons(job) == ["worker_lost", "succeeded"]


def test_worker_speaks_tls_with_an_authority_of_ones_own(
    tmp_path: Path, database_url: str, eventually: Eventually
) -> None:
    files = certificates(tmp_path)
    with http_bed(tmp_path, database_url, tls_cert=files.server, tls_key=files.key) as made:
        # A worker that cannot reach the queue waits for it, and says why.
        stranger, lonely = made.begin("stranger"), made.begin("lonely", url="http://127.0.0.1:9")
        eventually(lambda: "no answer from http://127.0.0.1:9" in lonely.output)
        assert lonely.running
        lonely.kill()
        # One that does not trust the server leaves.
        assert stranger.process.wait(120) == 5
        assert stranger.output.count("certificate is not trusted") == 1
        assert "Traceback" not in lonely.output + stranger.output
        worker = made.worker("one", tls_ca=files.authority)
        # The objects of a file store come from the same server.
        job = made.script("print('over tls')", folder=None)
        made.succeeds(job)
        assert made.log(job) == b"over tls\n"
        assert "certificates_not_checked" not in worker.output
        trusting = made.worker("trusting", insecure_skip_verify="True")
        assert "certificates_not_checked" in trusting.output


BAD_SETTINGS: list[tuple[dict[str, str], int, str]] = [
    ({"url": ""}, 2, "no queue is given"),
    ({"url": "forge.example"}, 2, "write a server's URL as https://"),
    ({"token": ""}, 2, "--url needs --token or --token-file"),
    ({"token": "fgw_1_abc"}, 2, "this is not a complete token"),
    ({"database_url": "postgresql://x/y"}, 2, "both a URL and a database are given"),
    ({"tls_ca": "/no/such/file"}, 1, "the certificates in /no/such/file cannot be used"),
]


def test_bad_setting_is_a_clear_message(tmp_path: Path, database_url: str) -> None:
    with http_bed(tmp_path, database_url) as made:
        workers = [made.begin(f"w{n}", **bad[0]) for n, bad in enumerate(BAD_SETTINGS)]
        for n, (worker, (_, code, said)) in enumerate(zip(workers, BAD_SETTINGS, strict=True)):
            assert worker.process.wait(120) == code, worker.output
            assert said in worker.output
            assert "Traceback" not in worker.output
            assert made.tokens[f"w{n}"] not in worker.output


def test_what_a_job_sees_holds_no_token(tmp_path: Path, database_url: str) -> None:
    with http_bed(tmp_path, database_url) as made:
        worker = made.worker()
        job = made.script("import os, json; print(json.dumps(dict(os.environ)))")
        made.succeeds(job)
        variables = json.loads(made.log(job))
        # Made for this attempt, so that a local Ray is nobody else's.
        assert variables.pop("RAY_AUTH_TOKEN", "")
        assert not any("TOKEN" in name or name == "FORGE_URL" for name in variables)
        assert made.tokens["one"] not in made.log(job).decode() + worker.output


def test_docker_worker_needs_nothing_more(tmp_path: Path, database_url: str) -> None:
    with http_bed(tmp_path, database_url, kind="docker") as made:
        made.worker()
        made.succeeds(made.script("print('in a container')"))
