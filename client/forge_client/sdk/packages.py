"""The packages of the environment in which this Python runs, as requirements."""

import warnings
from importlib.metadata import Distribution, PackageNotFoundError, distribution, distributions

from forge_client.errors import ClientError
from forge_client.project.environment.names import AN_EXTRA, canonical, name_of


def installed(*names: str) -> list[str]:
    """Return the versions that are installed here, for `job(packages=…)`: `["numpy==2.3.5", …]`.

    Packages that come from a folder or a URL are left out with a warning: no index has them.

    Args:
        *names: packages to name, with what they require; all that are installed if none is given.

    Raises:
        ClientError: a package is not installed here.
    """
    packages = {canonical(package.name): package for package in _wanted(names)}
    local = [name for name, package in packages.items() if package.read_text("direct_url.json")]
    if local:
        warnings.warn(f"{', '.join(sorted(local))}: not from an index, so left out", stacklevel=2)
    return sorted(
        f"{name}=={package.version}" for name, package in packages.items() if name not in local
    )


def _wanted(names: tuple[str, ...]) -> list[Distribution]:
    if not names:
        return list(distributions())
    packages: dict[str, Distribution] = {canonical(name): _named(name) for name in names}
    rest = list(packages)
    while rest:
        for needed in packages[rest.pop()].requires or []:
            name = "" if AN_EXTRA.search(needed) else name_of(needed)
            if name and name not in packages:
                try:
                    packages[name] = distribution(name)
                except PackageNotFoundError:
                    # It is for another platform or another Python.
                    continue
                rest.append(name)
    return list(packages.values())


def _named(name: str) -> Distribution:
    try:
        return distribution(name)
    except PackageNotFoundError as error:
        raise ClientError(
            f"{name} is not installed here",
            hint="give its name in the package index, as for `pip install`",
            code="name_unknown",
        ) from error
