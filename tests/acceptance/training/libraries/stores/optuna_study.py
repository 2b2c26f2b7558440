"""An Optuna study searches a grid; its storage is a `journal` or an `rdb` (SQLite)."""

import json
import sys
import threading
from pathlib import Path

import optuna
from optuna.storages import JournalStorage, RDBStorage
from optuna.storages.journal import JournalFileBackend
from optuna.trial import TrialState

pause = threading.Event()
folder = Path("ck")
folder.mkdir(exist_ok=True)
GRID = {"x": list(range(24)), "y": list(range(10))}


def objective(trial):
    x, y = (trial.suggest_int(name, min(GRID[name]), max(GRID[name])) for name in GRID)
    pause.wait(0.3)
    print("step", trial.number + 1, flush=True)
    return (x - 3) ** 2 + (y - 7) ** 2


def completed(study):
    return {
        tuple(trial.params.values())
        for trial in study.get_trials(deepcopy=False, states=[TrialState.COMPLETE])
    }


optuna.logging.set_verbosity(optuna.logging.WARNING)
if sys.argv[1] == "journal":
    storage = JournalStorage(JournalFileBackend(str(folder / "journal.log")))
else:
    storage = RDBStorage(f"sqlite:///{folder}/study.db")
study = optuna.create_study(
    storage=storage,
    study_name="search",
    load_if_exists=True,
    sampler=optuna.samplers.GridSampler(GRID, seed=1),
)
print("starts at", len(completed(study)), flush=True)
study.optimize(objective)
end = {"points": len(completed(study)), "best": study.best_value, **study.best_params}
print("end", json.dumps(end))
