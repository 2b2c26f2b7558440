"""Whether a GPU is of the model that a job wants: the rule of `forge_gpus_match`, in Python."""

import re
from functools import lru_cache

MAGIC = {"*": ".*", "?": "."}


@lru_cache(maxsize=1000)
def is_model(wanted: str, name: str) -> bool:
    """Tell whether a name matches a glob of * and ?; case and the vendor's name do not count."""
    return _matches(wanted, name) or _matches(f"* {wanted}", name)


def _matches(glob: str, name: str) -> bool:
    pattern = "".join(MAGIC.get(char) or re.escape(char) for char in glob.lower())
    return re.fullmatch(pattern, name.lower(), re.DOTALL) is not None
