"""How 0.2 counts ends by the minute. Nothing needs this from 0.4 on."""

from pydantic import BaseModel


class CountsDead(BaseModel):
    """In 0.2, jobs without retries left were not `failed`, and its clients want their number."""

    dead: int = 0
