"""Ray: a cluster that lives as long as the job, on whose head the job's command runs."""

import shlex
from pathlib import PurePath

from forge_worker.gang.launchers.launcher import Launch
from forge_worker.gang.members import Gang

SCRIPT = "ray.sh"
# Seconds until every machine must have joined the cluster.
JOIN_S = 120


def launch(gang: Gang, command: tuple[str, ...], control: PurePath) -> Launch:
    """Return a script that starts or joins the cluster; on the head it then runs the command.

    `ray.init()` finds the cluster by RAY_ADDRESS. The run ends when the command ends.
    """
    cluster = f"{gang.master.address}:{gang.master_port}"
    text = _head(gang, cluster, command) if gang.rank == 0 else _joining(gang, cluster)
    return Launch(("/bin/sh", str(control / SCRIPT)), {"RAY_ADDRESS": cluster}, {SCRIPT: text})


def _options(gang: Gang) -> str:
    own = gang.own
    return (
        f"--node-ip-address={own.address} --num-cpus={max(1, int(own.cpus))}"
        f" --num-gpus={own.gpus} --disable-usage-stats"
    )


def _head(gang: Gang, cluster: str, command: tuple[str, ...]) -> str:
    count = (
        "import ray; ray.init(log_to_driver=False, logging_level='ERROR');"
        f" raise SystemExit(sum(node['Alive'] for node in ray.nodes()) < {gang.nodes})"
    )
    return (
        f"ray start --head --port={gang.master_port} --include-dashboard=false {_options(gang)}"
        " || exit\n"
        + _until(f"python3 -c {shlex.quote(count)}", f"not all machines joined {cluster}")
        + f"exec {shlex.join(command)}\n"
    )


def _joining(gang: Gang, cluster: str) -> str:
    return (
        _until(f"ray health-check --address={cluster}", f"the Ray head {cluster} does not answer")
        + f"exec ray start --address={cluster} --block {_options(gang)}\n"
    )


def _until(check: str, failure: str) -> str:
    """Return shell code that repeats a check each second, and gives up after JOIN_S."""
    return (
        f"end=$(($(date +%s) + {JOIN_S}))\n"
        f"until {check} >/dev/null 2>&1; do\n"
        f'    [ "$(date +%s)" -lt "$end" ] || {{ echo {shlex.quote(failure)} >&2; exit 1; }}\n'
        "    sleep 1\n"
        "done\n"
    )
