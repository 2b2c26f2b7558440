"""Jobs made from named configs, as the server makes them."""

from collections.abc import Callable, Mapping
from typing import Any

from forge_schema.model.spec import JobSpec
from forge_schema.queue.templates import Templates

from forge_client.errors import ClientError

Fields = Mapping[str, Any]
# What no config can know of the jobs made from it.
OWN = ("owner", "idempotency_key")
# Makes a whole job of any config, so that the rest can be checked.
SAMPLE = {"name": "sample", "command": ["sample"], "owner": "sample"}


def whole(fields: Fields, templates: Callable[[], Templates]) -> JobSpec:
    """Return a job, with the fields of its `config_name` below its own.

    Raises:
        NoSuchTemplate: there is no config of this name.
        ValidationError: it is no job.
    """
    own = {name: value for name, value in fields.items() if name != "config_name"}
    if (config := fields.get("config_name")) is None:
        return JobSpec.model_validate(own)
    return JobSpec.model_validate(merged(templates().get(config)["spec"], own))


def check_config(config: Fields) -> None:
    """Refuse a config from which no job could be made.

    Raises:
        ClientError: it has a field that no config can have.
        ValidationError: a field is unknown or wrong.
    """
    if taken := [name for name in OWN if name in config]:
        raise ClientError(
            f"{taken[0]}: a job config cannot have it",
            hint="set it on the jobs made from it",
            code="spec_invalid",
        )
    JobSpec.model_validate({**SAMPLE, **config})


def merged(below: Fields, above: Fields) -> dict[str, Any]:
    """Return fields with others laid over them; objects are merged, all else is replaced."""
    both = {
        name: merged(below[name], said)
        for name, said in above.items()
        if isinstance(said, Mapping) and isinstance(below.get(name), Mapping)
    }
    return {**below, **above, **both}
