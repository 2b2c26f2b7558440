"""The worker's settings about what jobs may do here; no job overrides the operator."""

from pathlib import Path
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, PositiveInt
from pydantic_settings import BaseSettings, NoDecode

from forge_worker.settings.machine import words

Words = Annotated[list[str], NoDecode, BeforeValidator(words)]
Place = Annotated[Path | None, BeforeValidator(lambda said: said or None)]


class PolicySettings(BaseSettings):
    """What the operator allows; sizes in MiB, times in seconds."""

    runner: Literal["auto", "docker", "process"] = Field("auto", description="how to run jobs")
    allow_processes: bool = Field(
        default=False, description="allow jobs as plain processes, which have no boundary"
    )
    default_image: str = Field("", description="the image for jobs that name none")
    allowed_images: Words = Field(
        default_factory=lambda: ["*"],
        description="globs of the images that jobs may name, by commas",
    )
    allow_builds: bool = Field(
        default=False, description="allow images built here from a project's Dockerfile"
    )
    pull: Literal["missing", "always", "never"] = Field(
        "missing", description="when to fetch an image from its registry"
    )
    network: Literal["bridge", "none"] = Field("bridge", description="what containers may reach")
    allow_metadata: bool = Field(
        default=False,
        description="start containers although they can reach the cloud's metadata addresses",
    )
    extra_mounts: Words = Field(
        default_factory=list,
        description="folders of this machine for every job, /here:/there or /here:/there:rw",
    )
    allow_swap: bool = Field(default=False, description="allow jobs to swap")
    allow_install: bool = Field(
        default=True, description="allow projects to install what they require"
    )
    host_packages: bool = Field(
        default=False,
        description="let requirements of plain processes be met by what this machine's Python has",
    )
    keep_caches: bool = Field(
        default=True, description="keep each owner's model caches between jobs"
    )
    secrets_dir: Place = Field(
        None, description="a folder of secrets for jobs: a file for each, or a folder for an owner"
    )
    cache_mb: PositiveInt = Field(
        20_480,
        description="disk for each of: bundles, saved images, environments, model caches, MiB",
    )
