"""forge.toml: its valid contents, and the messages for mistakes."""

from __future__ import annotations

from pathlib import Path

import pytest
from forge_client.errors import ClientError
from forge_client.project.forge_toml import Project, key_position, naming_the_file
from forge_client.project.request import Request
from forge_client.project.submission import repeated

EXAMPLE = Path(__file__).parents[3] / "docs" / "forge-toml.md"


def read(folder: Path, text: str) -> Project:
    (folder / "forge.toml").write_text(text, encoding="utf-8")
    return Project.read(folder)


def refusal(folder: Path, text: str) -> ClientError:
    with pytest.raises(ClientError) as caught:
        read(folder, text)
    assert caught.value.code == "project_invalid"
    assert caught.value.exit_code == 2
    return caught.value


def test_a_folder_without_one_leaves_everything_unset(tmp_path: Path) -> None:
    spec = Project.read(tmp_path).request().changed({"command": ["ls"]})
    assert spec.spec(owner="ann", name="folder") == {
        "owner": "ann",
        "name": "folder",
        "experiment": "folder",
        "command": ["ls"],
        "labels": {},
        "env": {},
        "resources": {},
    }


def test_a_folder_or_a_dangling_link_of_its_name_is_refused(tmp_path: Path) -> None:
    (tmp_path / "forge.toml").mkdir()
    with pytest.raises(ClientError, match=r"forge\.toml: is not a file"):
        Project.read(tmp_path)
    (tmp_path / "forge.toml").rmdir()
    (tmp_path / "forge.toml").symlink_to("nowhere")
    with pytest.raises(ClientError, match="cannot be read: No such file"):
        Project.read(tmp_path)


def test_the_documented_example_is_valid_and_names_every_key(tmp_path: Path) -> None:
    text = EXAMPLE.read_text(encoding="utf-8").split("```toml\n")[1].split("```")[0]
    project = read(tmp_path, text)
    # Two take the place of `image`, and so stand there as comments.
    unnamed = set(Project.model_fields) - project.model_fields_set
    # Four are said by the commands that make such jobs.
    made = {"handler", "arguments", "parameters", "sweep"}
    # These are of one submission, and not of the project.
    once = {"idempotency_key", "from_checkpoint", "after", "after_ok", "after_any"}
    wanted = {*once, "image_tar", "dockerfile", *made}
    assert unnamed == wanted, f"name {unnamed - wanted} in the first example of docs/forge-toml.md"
    assert all(f"# {name} = " in text for name in ("image_tar", "dockerfile"))
    assert project.resources.model_fields_set == set(type(project.resources).model_fields)


def test_words_become_what_the_queue_wants(tmp_path: Path) -> None:
    text = """
    command = "python train.py --name 'two words'"
    timeout = "1h30m"
    checkpoint_interval = "2s"
    grace = "500ms"
    [resources]
    memory = "1.5GB"
    disk = "1025K"
    gpus = 2
    """
    spec = read(tmp_path, text).request().spec(owner="ann", name="x")
    assert spec["command"] == ["python", "train.py", "--name", "two words"]
    assert (spec["timeout_s"], spec["checkpoint_interval_s"], spec["grace_s"]) == (5400, 2.0, 0.5)
    assert spec["resources"] == {"memory_mb": 1536, "disk_mb": 2, "gpus": 2}


def test_options_win_and_add_to_labels_env_and_resources(tmp_path: Path) -> None:
    text = """
    name = "a"
    priority = 1
    [labels]
    zone = "eu"
    [env]
    A = "1"
    [resources]
    cpus = 2
    memory = "1GB"
    """
    changes = {"name": "b", "labels": {"disk": "ssd"}, "env": {"A": "2"}, "memory": "2GB"}
    request = read(tmp_path, text).request().changed({**changes, "priority": None})
    spec = request.changed({"command": ["ls"]}).spec(owner="ann", name="x")
    assert (spec["name"], spec["priority"]) == ("b", 1)
    assert spec["labels"] == {"zone": "eu", "disk": "ssd"}
    assert spec["env"] == {"A": "2"}
    assert spec["resources"] == {"cpus": 2.0, "memory_mb": 2048}


@pytest.mark.parametrize(
    ("text", "where", "hint"),
    [
        ('name = "x"\nprioritty = 3\n', "line 2, column 1", "'priority'"),
        ("[resources]\n  memroy = '1GB'\n", "line 2, column 3", "'memory'"),
        ("[connection]\napi_key = 'x'\n", "line 2, column 1", "database_url"),
        ("memory = '1GB'\n", "line 1, column 1", "[resources]"),
        ("gpuz = 1\n", "line 1, column 1", "'gpus' below [resources]"),
        ("[resorces]\ncpus = 1\n", "line 1, column 2", "'resources'"),
        ("resources.cpu = 1\n", "line 1, column 1", "'cpus'"),
        ("resources = { cpu = 1 }\n", "line 1, column 1", "'cpus'"),
    ],
)
def test_an_unknown_key_is_named_with_its_place_and_a_suggestion(
    tmp_path: Path, text: str, where: str, hint: str
) -> None:
    error = refusal(tmp_path, text)
    assert where in error.message
    assert "unknown key" in error.message
    assert hint in error.hint


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('name = "x"\npriority = "high"\n', "line 2, column 1: priority: write a whole number"),
        ("\n[resources]\nmemory = 'much'\n", "line 3, column 1: resources.memory: 'much' is not"),
        ("[resources]\nmemory = 512\n", "512 is not a size; write 512MiB"),
        ("timeout = 'soon'\n", "line 1, column 1: timeout: 'soon' is not a duration"),
        ("[labels]\nzone = 3\n", "line 2, column 1: labels.zone: write a text"),
        ("nodes = '8..2'\n", "line 1, column 1: nodes: a range of machines cannot"),
        ("command = 3\n", "line 1, column 1: command: it is neither a text nor a list"),
        ("command = 'a && b'\n", "write: bash -c 'a && b'"),
        ("priority = 1001\n", "line 1, column 1: priority: must be at most 1000"),
        ("name = \n", "line 1, column 8"),
        ("name = 'x'\nname = 'y'\n", "line 2, column 11"),
    ],
)
def test_a_wrong_value_is_told_with_its_place(tmp_path: Path, text: str, said: str) -> None:
    assert said in refusal(tmp_path, text).message


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("name = x\n", 'write name = "x"'),
        ("command = 3\n", 'write command = "python train.py"'),
        ("[env]\nA = 1\n", 'write A = "1"'),
        ("[labels]\nspot = true\n", 'write spot = "true"'),
    ],
)
def test_the_hint_says_what_to_write(tmp_path: Path, text: str, hint: str) -> None:
    assert hint in refusal(tmp_path, text).hint


def test_a_sign_in_quotes_is_an_argument(tmp_path: Path) -> None:
    project = read(tmp_path, """command = "echo a '|' b"\n""")
    assert project.request().command == ["echo", "a", "|", "b"]
    # A list is what the program gets, without a shell before it.
    project = read(tmp_path, """command = ["expr", "3", "|", "4"]\n""")
    assert project.request().command == ["expr", "3", "|", "4"]


def test_a_file_that_is_not_utf8_is_refused(tmp_path: Path) -> None:
    (tmp_path / "forge.toml").write_bytes(b"name = '\xff'\n")
    with pytest.raises(ClientError, match="UTF-8"):
        Project.read(tmp_path)


def test_an_empty_command_is_refused_with_what_to_write(tmp_path: Path) -> None:
    with pytest.raises(ClientError) as caught:
        read(tmp_path, "command = []\n").request().spec(owner="ann", name="x")
    assert caught.value.code == "command_empty"
    assert "--" in caught.value.hint


def test_a_key_is_found_below_its_own_table_only() -> None:
    text = 'name = "x"\n[env]\nname = "y"\n\n[resources] # cpus = 1\n "cpus" = 2\n'
    assert key_position(text, ("name",)) == (1, 1)
    assert key_position(text, ("env", "name")) == (3, 1)
    assert key_position(text, ("resources", "cpus")) == (6, 2)
    assert key_position(text, ("resources", "gone")) == (5, 2)


def test_what_the_queue_refuses_is_told_with_its_line(tmp_path: Path) -> None:
    text = "preempt_signal = 'SIGX'\n[resources]\ngpu_model = 'x'\n"
    (tmp_path / "forge.toml").write_text(text)
    project = Project.read(tmp_path)
    option = project.changed({"preempt_signal": "SIGY"})

    def told(message: str, *requests: Request, code: str = "spec_invalid") -> str:
        with pytest.raises(ClientError) as raised, naming_the_file(tmp_path, requests):
            raise ClientError(message, code=code)
        return raised.value.message.removeprefix(str(tmp_path))

    # Which of them is refused, nobody says.
    assert told("preempt_signal: no", project, option) == "preempt_signal: no"
    assert told("preempt_signal: no", project) == (
        "/forge.toml: line 1, column 1: preempt_signal: no"
    )
    assert told("gpu_model: no", option).startswith("/forge.toml: line 3, column 1: gpu_model")
    # An option has replaced it; it is not there; it is no value that is wrong.
    assert told("preempt_signal: no", option) == "preempt_signal: no"
    assert told("nodes: must be less", project) == "nodes: must be less"
    assert told("preempt_signal: late", project, code="other") == "preempt_signal: late"


def test_a_job_that_runs_again_keeps_its_secrets_beside_new_ones() -> None:
    job = {"command": ["run"], "secrets": ["A"], "env": {"LR": "1"}}
    again = repeated(job, {"secrets": ["B", "A"], "env": {"SEED": "2"}})
    assert (again["secrets"], again["env"]) == (["A", "B"], {"LR": "1", "SEED": "2"})
