"""A job with something to lose: it counts steps, and keeps the count where checkpoints are made."""

import json
import os
import time
from pathlib import Path

STEP_S = 0.05


def main() -> None:
    """Count from where the last attempt's checkpoint was, for ever."""
    kept = Path(os.environ["FORGE_CHECKPOINT_DIR"], "step")
    step = int(kept.read_text(encoding="utf-8")) if kept.exists() else 0
    attempt = int(os.environ["FORGE_ATTEMPT"])
    with Path(os.environ["RECOVERY_NOTES"]).open("a", buffering=1, encoding="utf-8") as notes:
        while True:
            at = {"attempt": attempt, "step": step, "at": time.time(), "pid": os.getpid()}
            notes.write(f"{json.dumps(at)}\n")
            time.sleep(STEP_S)
            step += 1
            new = kept.with_name("new")
            new.write_text(str(step), encoding="utf-8")
            new.rename(kept)


if __name__ == "__main__":
    main()
