"""A spaCy pipeline is saved as a folder after each epoch, and loaded from it.

`spacy train` itself cannot resume, and `to_disk` saves no state of the optimizer. So this loop uses
plain gradient descent, which has none.
"""

import json
import threading
from pathlib import Path

import spacy
from spacy.training import Example
from thinc.api import Optimizer, fix_random_seed

EPOCHS = 240
pause = threading.Event()
folder = Path("ck", "model-last")
folder.parent.mkdir(exist_ok=True)
TEXTS = [("good work", 1.0), ("bad work", 0.0), ("good day", 1.0), ("bad day", 0.0)] * 4


def examples(nlp):
    return [
        Example.from_dict(nlp.make_doc(text), {"cats": {"GOOD": good, "BAD": 1 - good}})
        for text, good in TEXTS
    ]


def initialized():
    nlp = spacy.blank("en")
    nlp.add_pipe("textcat")
    nlp.initialize(lambda: examples(nlp))
    return nlp


fix_random_seed(1)
nlp = spacy.load(folder) if folder.exists() else initialized()
done = int(nlp.meta.get("epoch", 0))
descent = Optimizer(0.01, L2=0.0, grad_clip=0.0, use_averages=False)
print("starts at", done, flush=True)
for epoch in range(done + 1, EPOCHS + 1):
    nlp.update(examples(nlp), sgd=descent, drop=0.0)
    nlp.meta["epoch"] = epoch
    nlp.to_disk(folder)
    print("step", epoch, flush=True)
    pause.wait(0.3)
print("end", json.dumps({"epochs": EPOCHS, "good": nlp("good work").cats["GOOD"]}))
