"""What a cold start costs: each handler's import from the zip, its first answer, the zip's size.

`.venv/bin/python benchmarks/lambda` builds the zip and prints the tables of RESULTS.md.
"""

import argparse
import json
import platform
import re
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from statistics import median
from zipfile import ZipFile

ROOT = Path(__file__).parents[2]
HANDLERS = ("submit", "admin", "workers", "sweep", "enrol")
# A request that is turned away without the database: what is left is the function itself.
ASKED = {"submit": "/api/v1/me", "admin": "/api/v1/workers", "workers": "/api/v1/workers/stream"}
SHOWN = 12

# Run in an interpreter that has nothing but the zip, as on Lambda. It takes CPU time, since others
# may use the machine, and since Lambda sells CPU by the share.
CHILD = """
import json, sys, time
def spent(since=[time.process_time()]):
    before, since[0] = since[0], time.process_time()
    return since[0] - before
sys.path.insert(0, sys.argv[1])
sys.dont_write_bytecode = True
module = __import__(f"forge_functions.handlers.{sys.argv[2]}", fromlist=["handler"])
took = [spent()]
if len(sys.argv) > 3:
    event = json.loads(sys.argv[3])
    for _ in range(2):
        assert module.handler(event, None)["statusCode"] == 401
        took.append(spent())
    from forge_schema.storage.signed import open_signer
    signer = open_signer("s3://bucket/forge?region=eu-west-1", secret=b"", base_url="", lasts_s=9)
    signer.get("bundles/x")
    took.append(spent())
sys.stderr.write("TOOK " + json.dumps(took))
"""
SETTINGS = {
    "FORGE_DATABASE_URL": "postgresql://nobody@127.0.0.1:1/none",
    "FORGE_STORE_URL": "s3://bucket/forge?region=eu-west-1",
    "FORGE_SERVER_SECRET": "0123456789abcdef" * 4,
    "FORGE_ENROL_ROLE": "AROAEXAMPLE",
    "AWS_ACCESS_KEY_ID": "test",
    "AWS_SECRET_ACCESS_KEY": "test",
}


def main() -> None:
    """Measure everything and print it."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=15, help="fresh processes for each figure")
    rounds = parser.parse_args().rounds
    with tempfile.TemporaryDirectory(prefix="forge-bench-") as folder:
        zipped, code = Path(folder, "forge-lambda.zip"), Path(folder, "code")
        subprocess.run(
            [sys.executable, ROOT / "infra/lambda_zip.py", "--output", zipped], check=True
        )
        with ZipFile(zipped) as archive:
            archive.extractall(code)
        print(f"\nPython {platform.python_version()}, ms of CPU, median of {rounds} processes\n")
        cold_starts(code, rounds)
        for handler in ("submit", "sweep"):
            importing(code, handler)
        sizes(zipped)


def cold_starts(code: Path, rounds: int) -> None:
    """Print how long each handler takes to be ready, and then to answer."""
    bare = without_bytecode(code)
    ready: dict[str, list[list[float]]] = {handler: [] for handler in HANDLERS}
    unready: dict[str, list[float]] = {handler: [] for handler in HANDLERS}
    # In turn, so that what disturbs the machine falls on all.
    for _ in range(rounds):
        for handler in HANDLERS:
            ready[handler].append(child(code, handler))
            unready[handler].append(child(bare, handler)[0])
    print("| handler | import | without bytecode | first answer | second | first signed URL |")
    print("|---|---|---|---|---|---|")
    for handler, runs in ready.items():
        imported, *later = (1000 * median(column) for column in zip(*runs, strict=True))
        cells = [f"{imported:.0f}", f"{1000 * median(unready[handler]):.0f}"]
        cells += [f"{took:.1f}" for took in later] or [""] * 3
        print(f"| {handler} | {' | '.join(cells)} |", flush=True)


def child(code: Path, handler: str) -> list[float]:
    """Return the seconds of an import, and where there is a path to ask, of what follows."""
    event = [json.dumps(http_event(ASKED[handler]))] if handler in ASKED else []
    took: list[float] = json.loads(said([], code, handler, *event).partition("TOOK ")[2])
    return took


def said(options: list[str], *arguments: str | Path) -> str:
    """Run the child in a fresh process, and return what it wrote."""
    command = [sys.executable, "-I", "-S", *options, "-c", CHILD, *map(str, arguments)]
    ran = subprocess.run(command, env=SETTINGS, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    return ran.stderr


def http_event(path: str) -> dict[str, object]:
    """Return the least that API Gateway sends."""
    http = {"method": "GET", "path": path, "sourceIp": "203.0.113.7"}
    return {
        "version": "2.0",
        "rawPath": path,
        "rawQueryString": "",
        "headers": {"host": "forge.example", "x-forwarded-proto": "https"},
        "requestContext": {"http": http, "stage": "$default"},
        "isBase64Encoded": False,
    }


def without_bytecode(code: Path) -> Path:
    """Return a copy of the code as it would be without what `lambda_zip.py` compiles."""
    copy = code.with_name("bare")
    subprocess.run(["cp", "-r", code, copy], check=True)
    for compiled in list(copy.rglob("*.pyc")):
        compiled.unlink()
    return copy


def importing(code: Path, handler: str) -> None:
    """Print which packages' own code an import spends its time in."""
    spent: Counter[str] = Counter()
    for line in said(["-X", "importtime"], code, handler).splitlines():
        if match := re.match(r"import time:\s+(\d+) \|\s+\d+ \|\s+(\S+)", line):
            package = match[2].partition(".")[0]
            known = (code / package).exists() or (code / f"{package}.py").exists()
            spent[package if known else "the interpreter's own"] += int(match[1])
    print(f"\n| importing {handler} | ms in its own code |\n|---|---|")
    for package, microseconds in spent.most_common(SHOWN):
        print(f"| {package} | {microseconds / 1000:.0f} |")
    print(f"| all {len(spent)} | {spent.total() / 1000:.0f} |")


def sizes(zipped: Path) -> None:
    """Print what the zip is made of."""
    packed: Counter[str] = Counter()
    unpacked: Counter[str] = Counter()
    bytecode: Counter[str] = Counter()
    with ZipFile(zipped) as archive:
        for entry in archive.infolist():
            package = re.split(r"[/.]", entry.filename)[0]
            packed[package] += entry.compress_size
            unpacked[package] += entry.file_size
            if entry.filename.endswith(".pyc"):
                bytecode[package] += entry.compress_size
    print("\n| in the zip | MB packed | of that bytecode | MB unpacked |\n|---|---|---|---|")
    rows = [*packed.most_common(SHOWN), ("everything", packed.total())]
    unpacked["everything"], bytecode["everything"] = unpacked.total(), bytecode.total()
    for package, size in rows:
        cells = (size, bytecode[package], unpacked[package])
        print(f"| {package} | {' | '.join(f'{cell / 1e6:.1f}' for cell in cells)} |")


if __name__ == "__main__":
    main()
