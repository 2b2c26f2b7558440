"""The chaos suite: `make chaos SEED=… MINUTES=…`.

Runs jobs on its own bed, injects faults on a seeded schedule, and checks at the end that nothing
was lost, done twice, or left behind. Exits with 1 for a violation.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import secrets
import shutil
import sys
import tempfile
from contextlib import redirect_stderr
from pathlib import Path

import stamina
from chaos.faults import KINDS
from chaos.options import Options
from chaos.run import Outcome, run
from chaos.twins import run_two


def main() -> int:
    """Execute one run and report its outcome."""
    told = _parser().parse_args()
    for name in list(os.environ):
        if name.startswith(("AWS_", "FORGE_")) and not name.startswith("FORGE_TEST_"):
            del os.environ[name]
    folder = told.folder or Path(tempfile.mkdtemp(prefix="forge-chaos-"))
    folder.mkdir(parents=True, exist_ok=True)
    # Postgres runs as another user.
    folder.chmod(0o755)
    options = Options(
        seed=secrets.randbelow(1_000_000) if told.seed is None else told.seed,
        minutes=told.minutes,
        folder=folder,
        workers=told.workers,
        jobs_per_s=told.jobs,
        gap_s=told.gap,
        only=tuple(told.only),
        containers=not told.no_containers,
        old=not told.no_old,
        proxy=told.proxy,
        podman=told.podman,
    )
    # Broken connections are expected here, so their log messages are noise.
    stamina.instrumentation.set_on_retry_hooks([])
    with (folder / "bed.log").open("w", encoding="utf-8") as log, redirect_stderr(log):
        logging.basicConfig(stream=log, force=True)
        outcomes = run_two(options) if told.two_queues else [(run(options), options)]
        logging.basicConfig(force=True)
    return max([tell(*outcome, keep=told.keep) for outcome in outcomes])


def tell(outcome: Outcome, options: Options, *, keep: bool = False) -> int:
    """Print a run's outcome, and return an exit code; after a violation the folder is kept."""
    figures = outcome.figures
    for text in outcome.stories:
        sys.stdout.write(f"\n{text}\n")
    sys.stdout.write(f"\n{figures.table()}\n\n{json.dumps(figures.as_dict())}\n")
    bad = bool(outcome.stories or figures.troubles)
    if keep or bad:
        sys.stdout.write(f"seed {options.seed}; history and logs are in {options.folder}\n")
    else:
        shutil.rmtree(options.folder, ignore_errors=True)
    sys.stdout.flush()
    return 1 if bad else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="chaos", description=__doc__.partition("\n\n")[0])
    parser.add_argument("--seed", type=int, help="of jobs and faults; made up if absent")
    parser.add_argument("--minutes", type=float, default=10.0, help="how long faults strike")
    parser.add_argument("--workers", type=int, default=20)
    parser.add_argument("--jobs", type=float, default=3.0, help="jobs a second")
    parser.add_argument("--gap", type=float, default=5.0, help="seconds between faults, on average")
    names = [kind.name for kind in KINDS]
    parser.add_argument("--only", action="append", default=[], choices=names, metavar="FAULT")
    parser.add_argument("--no-containers", action="store_true")
    parser.add_argument("--no-old", action="store_true", help="no workers of the release before")
    parser.add_argument(
        "--two-queues", action="store_true", help="two queues and two engines, workers of one name"
    )
    parser.add_argument(
        "--proxy", action="store_true", help="servers behind nginx, one replaced each minute"
    )
    parser.add_argument(
        "--podman", action="store_true", help="container workers at Docker and at Podman in turn"
    )
    parser.add_argument("--folder", type=Path, help="for history and logs; a temporary one")
    parser.add_argument("--keep", action="store_true", help="keep the folder in any case")
    return parser


if __name__ == "__main__":
    sys.exit(main())
