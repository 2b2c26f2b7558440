"""Fair share by GPU time, over days of a simulated cluster."""

from __future__ import annotations

from support.queue.fair_share import Cluster, Owner

HOUR_S = 3600.0


def test_after_40_000_claims_every_owner_is_within_5_percent_of_its_weight() -> None:
    owners = [
        Owner(weight=1 + n % 4, gpus=(1, 2, 4, 8, 3)[n % 5], job_s=20.0 * (1 + n % 7 % 5))
        for n in range(40)
    ]
    cluster = Cluster(owners, gpus=64)
    cluster.run(claims=40_000)
    entitled = sum(owner.gpu_s for owner in owners) / sum(owner.weight for owner in owners)
    had = [owner.gpu_s / (owner.weight * entitled) for owner in owners]
    assert 0.95 <= min(had) <= max(had) <= 1.05, had


def test_a_hundred_owners_take_turns_on_ten_gpus() -> None:
    for job_s in (5.0, 1200.0):
        owners = [Owner(job_s=job_s) for _ in range(100)]
        Cluster(owners, gpus=10).run(claims=1000)
        assert min(owner.jobs for owner in owners) >= 3, job_s


def test_an_owner_who_was_away_gets_no_more_than_before() -> None:
    cluster = Cluster([Owner(job_s=100.0) for _ in range(8)], gpus=32)
    cluster.run(seconds=2 * HOUR_S)
    cluster.owners[0].waits = False
    cluster.run(seconds=6 * HOUR_S)
    cluster.owners[0].waits = True
    assert cluster.measured(HOUR_S / 2)[0] <= 1.2 * 32 / 8


def test_an_owner_whose_jobs_fitted_nowhere_makes_up_for_it_at_less_than_twice_its_share() -> None:
    cluster = Cluster([Owner(job_s=100.0) for _ in range(8)], gpus=32)
    cluster.owners[0].fits = False
    cluster.run(seconds=12 * HOUR_S)
    cluster.owners[0].fits = True
    assert 1.2 * 32 / 8 <= cluster.measured(HOUR_S)[0] <= 2 * 32 / 8


def test_what_an_owner_had_alone_is_no_debt() -> None:
    first, *others = owners = [Owner(job_s=600.0) for _ in range(8)]
    for other in others:
        other.waits = False
    cluster = Cluster(owners, gpus=32)
    cluster.run(seconds=24 * HOUR_S)
    for other in others:
        other.waits = True
    cluster.run(seconds=4 * HOUR_S)
    assert first.gpu_s > 24 * 30 * HOUR_S
    assert 0.8 * 32 / 8 <= cluster.measured(2 * HOUR_S)[0] <= 1.2 * 32 / 8


def test_a_new_weight_counts_at_once() -> None:
    cluster = Cluster([Owner(job_s=100.0) for _ in range(8)], gpus=30)
    cluster.run(seconds=2 * HOUR_S)
    cluster.owners[0].weight = 3
    cluster.run(seconds=300)
    assert abs(cluster.measured(HOUR_S)[0] - 9) < 0.5
