"""Train a small language model with Hugging Face's Trainer, which knows nothing of Forge.

It learns two hundred random sentences by heart. What makes it resume is what any script with a
Trainer does: it looks for the newest checkpoint in its folder.
"""

import argparse
from pathlib import Path

import torch  # type: ignore[import-not-found,unused-ignore]
from transformers import (  # type: ignore[import-not-found,unused-ignore]
    GPT2Config,
    GPT2LMHeadModel,
    Trainer,
    TrainingArguments,
    set_seed,
)
from transformers.trainer_utils import (  # type: ignore[import-not-found,unused-ignore]
    get_last_checkpoint,
)

WORDS, LENGTH, SENTENCES = 64, 16, 200


def main() -> None:
    """Train, from the newest checkpoint if there is one, and print the loss of each step."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--save-steps", type=int, default=5)
    asked = parser.parse_args()
    set_seed(7)
    sentences = torch.randint(0, WORDS, (SENTENCES, LENGTH))
    settings = TrainingArguments(
        max_steps=asked.steps,
        save_steps=asked.save_steps,
        save_total_limit=2,
        logging_steps=1,
        use_cpu=not torch.cuda.is_available(),
        report_to="none",
        disable_tqdm=True,
    )
    shape = GPT2Config(vocab_size=WORDS, n_positions=LENGTH, n_embd=32, n_layer=2, n_head=2)
    rows = [{"input_ids": sentence, "labels": sentence} for sentence in sentences]
    trainer = Trainer(GPT2LMHeadModel(shape), settings, train_dataset=rows)
    folder = settings.output_dir
    newest = get_last_checkpoint(folder) if Path(folder).is_dir() else None
    print("resumed from", newest, flush=True)
    trainer.train(resume_from_checkpoint=newest)
    for entry in trainer.state.log_history:
        if "loss" in entry:
            print("step", entry["step"], entry["loss"], flush=True)


if __name__ == "__main__":
    main()
