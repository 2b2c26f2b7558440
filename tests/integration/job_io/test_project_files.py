"""Programs that save where they like: beside their code, or in a folder that they remove."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from support.workers.worker import Bed

SAVES_BESIDE = """
import os, pathlib, sys
here = pathlib.Path(__file__).parent
best = here / "best.pt"
n = int(best.read_text()) + 1
print(n, sorted(p.relative_to(here).as_posix() for p in here.rglob("*.*")), flush=True)
if n > 1:
    print(max(here.glob("*.pt"), key=os.path.getmtime).resolve().name, flush=True)
new = here / "new.tmp"
new.write_text(str(n))
new.replace(best)
(here / "runs" / "a").mkdir(parents=True, exist_ok=True)
(here / "runs" / "a" / f"{n}.ckpt").write_text("x")
if not (here / "last.pt").is_symlink():
    (here / "last.pt").symlink_to("best.pt")
(here / "other.bin").write_text("not stored")
sys.exit(n < 3)
"""
LEAVES = """
import os
for name in ("out/a b.pt", "out/b.pt", "data/c.npz", ".cache/d.bin", "runs/e.log"):
    os.makedirs(os.path.dirname(name), exist_ok=True)
    open(name, "w").close()
"""
# As Keras' BackupAndRestore does at the end, and as torch's examples do in their folder.
REMOVES = """
import os, pathlib, shutil, subprocess, sys
backup = pathlib.Path("backup")
assert os.path.samefile(backup, os.environ["FORGE_CHECKPOINT_DIR"])
assert pathlib.Path(os.environ["FORGE_CHECKPOINT_DIR"]).resolve() == backup.resolve()
os.chdir(backup)
assert pathlib.Path("../train.py").exists()
os.chdir("..")
if not (backup / "epoch").exists():
    (backup / "epoch").write_text("1")
    sys.exit(1)
print("resumed from", (backup / "epoch").read_text(), flush=True)
shutil.rmtree(backup)
if sys.argv[1:]:
    os.symlink("/tmp", backup)
"""


def test_files_beside_the_code_are_in_the_checkpoint(both: Bed, tmp_path: Path) -> None:
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "train.py").write_text(SAVES_BESIDE)
    for name in ("best.pt", "fixed.pt"):
        (folder / name).write_text("0")
    both.worker()
    job = both.submit(
        *(both.python, "train.py"),
        folder=folder,
        checkpoint=["*.pt", "runs/**/*.ckpt"],
        max_failures=3,
    )
    both.succeeds(job)
    project = ["best.pt", "fixed.pt", "train.py"]
    saved = ["best.pt", "fixed.pt", "last.pt", "runs/a/1.ckpt"]
    assert both.log(job).decode().splitlines() == [
        f"1 {project}",
        f"2 {[*saved, 'train.py']}",
        "best.pt",
        f"3 {[*saved, 'runs/a/2.ckpt', 'train.py']}",
        "best.pt",
    ]
    row = both.database.row("latest_checkpoint", job_id=job)
    assert row is not None
    # What did not change is the project's.
    assert row["files"] == 4
    # One that keeps nothing is told what goes with its folder, and how to keep it.
    lost = both.submit(*(both.python, "-c", LEAVES), folder=folder)
    both.succeeds(lost)
    said = (
        "not kept: out/a b.pt and out/b.pt in the job's folder; submit with --checkpoint-dir out,"
        " or write to $FORGE_OUTPUT_DIR"
    )
    assert both.job(lost)["detail"] == said
    assert f"forge: {said}\n" in both.log(lost).decode()
    # Another job may start from it, and need not name the files again.
    follower = both.submit(
        *(both.python, "train.py"), folder=folder, from_checkpoint={"job_id": job}, max_failures=0
    )
    both.succeeds(follower)
    assert both.log(follower).decode().startswith("4 ['best.pt', 'fixed.pt', 'last.pt', 'runs/a/1")


def test_a_program_may_remove_or_replace_its_other_folders(process: Bed) -> None:
    process.worker()
    for name in ("OUTPUT", "CHECKPOINT"):
        for act in ("", "os.symlink('/etc', place)", "open(place, 'w')"):
            job = process.script(
                f"import os\nplace = os.environ['FORGE_{name}_DIR']\nos.rmdir(place)\n{act}\n"
            )
            process.succeeds(job)
            kind = "link" if "link" in act else "file"
            words = f"the {name.lower()} folder was replaced by a {kind}, so nothing in it is"
            assert process.log(job).decode() == (f"forge: {words} stored\n" if act else "")
            assert process.artifacts(job) == {}
            assert process.reasons(job) == ["succeeded"]


def test_a_program_may_remove_or_replace_its_checkpoint_folder(both: Bed, tmp_path: Path) -> None:
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "train.py").write_text(REMOVES)
    both.worker()
    jobs = [
        both.submit(
            *(both.python, "train.py", *more),
            folder=folder,
            checkpoint_dir="backup",
            max_failures=1,
        )
        for more in ((), ("replaced",))
    ]
    for job in jobs:
        both.succeeds(job)
    removed, replaced = [both.log(job).decode() for job in jobs]
    assert removed == "resumed from 1\n"
    assert replaced.splitlines() == [
        "resumed from 1",
        "forge: the checkpoint folder was replaced by a link, so nothing in it is stored",
    ]
    assert [both.reasons(job) for job in jobs] == [["exit_code", "succeeded"]] * 2
