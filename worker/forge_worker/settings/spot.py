"""The worker's settings about being taken away; times in seconds."""

from typing import Literal

from pydantic import Field, NonNegativeFloat, PositiveFloat
from pydantic_settings import BaseSettings


class SpotSettings(BaseSettings):
    """Who says that the machine goes, and what the time until then is used for."""

    spot: Literal["auto", "aws", "gcp", "azure", "none"] = Field(
        "auto", description="the cloud whose notices are heeded; auto finds out, none asks nobody"
    )
    spot_url: str = Field(
        "", description="its metadata server, if that is not at http://169.254.169.254"
    )
    term_notice_s: PositiveFloat = Field(
        25.0,
        description="seconds from SIGTERM, or from `forge preempt`, until the worker must be gone",
    )
    upload_reserve_s: NonNegativeFloat = Field(
        10.0,
        description="seconds of a notice kept for storing the last checkpoint, at least; half of"
        " it at most",
    )
