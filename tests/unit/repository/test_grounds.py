"""What `make grounds` says about what it saw."""

from __future__ import annotations

from pathlib import Path

import pytest
from grounds.declaration import GROUNDS, TREES
from grounds.run import Row, outcome, versions
from grounds.table import HEAD, lines, merged

ROOT = Path(__file__).parents[3]
START = ROOT / "tests" / "grounds" / "start"
FAILURES = "".join(f"FAILED tests/unit/x/test_x.py::test_{n}[a|b] - assert\n" for n in range(5))
NAMED = ", ".join(f"`test_x.py::test_{n}[a\\|b]`" for n in range(3))


def row(part: str, result: str = "works") -> Row:
    return Row("Debian 13", part, result, "Python 3.13.5", 7, "2026-11-28")


@pytest.mark.parametrize(
    ("status", "output", "said"),
    [
        (0, "built\n", "works with a patch"),
        (0, "....\n12 passed, 3 skipped in 7.01s\n", "works with a patch (12 passed, 3 skipped)"),
        (2, "make: *** Error 1\n", "fails with exit code 2"),
        # What failed was run again.
        (
            0,
            "2 failed, 9 passed in 7.01s\n2 passed in 0.90s\n",
            "works with a patch (2 failed, 9 passed; then 2 passed)",
        ),
        (
            1,
            f"{FAILURES}5 failed, 7 passed, 1 error in 9.00s\n",
            f"fails (5 failed, 7 passed, 1 error): {NAMED}, and 2 more",
        ),
        # What ran pytest may have said more.
        (2, "5 failed, 7 passed in 9.00s\nmake: *** Error 1\n", "fails (5 failed, 7 passed)"),
    ],
)
def test_a_cell_says_what_came_of_it(status: int, output: str, said: str) -> None:
    assert outcome(status, output, "a patch") == said


def test_versions_are_those_that_the_ground_itself_tells() -> None:
    said = "starting\n== versions\nPython 3.13.5\nOpenSSH_10.0p2\n== runs\n12 passed\n"
    assert versions(said) == "Python 3.13.5, OpenSSH_10.0p2"
    assert versions("dockerd: no such file\n") == ""


def test_a_run_replaces_its_rows_and_leaves_the_others() -> None:
    before = lines([row("demo"), row("unit", "fails (`a[x\\|y]`)")])
    page = f"# Grounds\n\n{before}\nmore\n"
    assert merged(page, []) == page
    now = merged(page, [row("suite"), row("demo", "fails")])
    assert now == (
        f"# Grounds\n\n{HEAD}"
        "| Debian 13 | demo | fails | Python 3.13.5 | 7 | 2026-11-28 |\n"
        "| Debian 13 | unit | fails (`a[x\\|y]`) | Python 3.13.5 | 7 | 2026-11-28 |\n"
        "| Debian 13 | suite | works | Python 3.13.5 | 7 | 2026-11-28 |\n"
        "\nmore\n"
    )


def test_every_ground_has_its_tree_and_its_scripts() -> None:
    assert {ground.tree for ground in GROUNDS} <= TREES.keys()
    scripts = {path.stem for path in START.iterdir()}
    assert {name for ground in GROUNDS for name in ground.start} <= scripts
    assert len({ground.name for ground in GROUNDS}) == len(GROUNDS)
