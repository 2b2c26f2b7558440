"""What `forge-worker` can be asked to do instead of working."""

from pydantic import Field
from pydantic_settings import BaseSettings


class ActSettings(BaseSettings):
    """Each of them is done once, and the program leaves."""

    status: bool = Field(default=False, description="print what this worker sees and does; leave")
    json_output: bool = Field(
        default=False, validation_alias="json", description="with --status: as JSON"
    )
    recover: bool = Field(
        default=False, description="clear what a worker that was killed left behind; leave"
    )
    reset_state: bool = Field(
        default=False,
        description="as --recover, and forget its caches and name; leave",
    )

    @property
    def acts(self) -> bool:
        """Whether it is asked to do anything but work."""
        return self.status or self.recover or self.reset_state
