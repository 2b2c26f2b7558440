"""Fit an Auto Scaling group to the queue: once now, or every minute with `--every 60`.

On AWS, infra/template.yaml runs the same as a scheduled function.
"""  # noqa: INP001 - a script, not a package

import argparse
import signal
import sys
from threading import Event

from botocore.exceptions import BotoCoreError, ClientError
from forge_functions.handlers.scale import NoSuchGroup, ScaleSettings, look, opened, say
from forge_schema.model.errors import ForgeError


def main() -> None:
    """Look once, or until told to leave."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    for name, field in ScaleSettings.model_fields.items():
        flag = f"--{name.removesuffix('_s').replace('_', '-')}"
        parser.add_argument(flag, dest=name, required=field.is_required(), help=field.description)
    parser.add_argument("--every", type=float, help="seconds between looks; once without it")
    given = {name: value for name, value in vars(parser.parse_args()).items() if value is not None}
    every = given.pop("every", None)
    settings = ScaleSettings.model_validate(given)
    leave = Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: leave.set())
    while True:
        try:
            look(*opened(), settings)
        except NoSuchGroup as error:
            sys.exit(f"scale: {error.message}")
        except (ForgeError, BotoCoreError, ClientError) as error:
            say(f"this look failed: {error}")
        if every is None or leave.wait(every):
            return


if __name__ == "__main__":
    main()
