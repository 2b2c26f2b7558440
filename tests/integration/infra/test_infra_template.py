"""The templates of infra/, checked without AWS: by cfn-lint, SAM's translator, and reading."""

from __future__ import annotations

import json
import re
import runpy
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import pytest
from forge_functions.handlers.scale import ScaleSettings
from forge_functions.settings import ServerSettings
from forge_schema.sweeper.settings import SweeperSettings
from support.cloud.cloudformation import (
    INFRA,
    NESTED,
    SAMPLE,
    cfn_lint,
    of_type,
    parsed,
    translated,
)

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

TEMPLATES = ("template.yaml", "workers.yaml", "database.yaml")
FUNCTIONS = ("Submit", "Admin", "Workers", "Dashboard", "Sweep", "Enrol", "Scale", "Setup")
SCHEDULED = ("Sweep", "Scale")
# Values that nobody may write where a name is expected.
HOSTILE = (
    "x\nrunning: true",
    "'; reboot; '",
    '"$(reboot)"',
    "a`reboot`",
    "${AWS::AccountId}",
    "a|b",
)


def test_cfn_lint_finds_nothing() -> None:
    # To start it takes as long as a template does.
    ended = cfn_lint(*(INFRA / name for name in TEMPLATES))
    assert (ended.returncode, ended.stdout) == (0, ""), ended.stdout + ended.stderr


def test_cfn_lint_finds_nothing_in_what_sam_makes_of_it(tmp_path: Path) -> None:
    made = tmp_path / "translated.json"
    made.write_text(json.dumps(translated()), encoding="utf-8")
    # SAM repeats a condition inside what already depends on it.
    ended = cfn_lint(made, ignored="W1028")
    assert (ended.returncode, ended.stdout) == (0, ""), ended.stdout + ended.stderr


def test_every_function_is_there_and_runs_what_the_zip_is_built_for() -> None:
    functions = of_type(translated(), "AWS::Lambda::Function")
    handlers = {f["Handler"] for f in functions.values()}
    named = {
        f"forge_functions.handlers.{n}.handler"
        for n in ("submit", "admin", "workers", "dashboard", "sweep", "setup")
    }
    assert named <= handlers
    longest = {"sweep": 55, "scale": 55, "setup": 900}
    for function in functions.values():
        module, _, name = function["Handler"].rpartition(".")
        assert name == "handler"
        assert find_spec(module), f"{module} does not exist"
        assert function["Architectures"] == [{"Ref": "Architecture"}]
        assert function["Runtime"] == {"Fn::If": ["OnArm", "python3.12", "python3.11"]}
        # API Gateway waits for 30 s.
        assert function["Timeout"] <= longest.get(module.rpartition(".")[2], 29)
    runtimes = runpy.run_path(str(INFRA / "lambda_zip.py"))["RUNTIMES"]
    assert {name: one.python for name, one in runtimes.items()} == {
        "arm64": "3.12",
        "x86_64": "3.11",
    }


def test_no_other_function_gets_new_code_before_the_database_is_migrated() -> None:
    resources = translated()["Resources"]
    for name, resource in resources.items():
        if resource["Type"] == "AWS::Lambda::Function" and name != "Setup":
            assert resource["DependsOn"] == "Migration", name
    asked = resources["Migration"]["Properties"]
    # A custom resource is asked again if one of its properties has changed.
    assert resources[asked["Code"]["Ref"]]["Type"] == "AWS::Lambda::Version"
    assert int(asked["ServiceTimeout"]) > resources["Setup"]["Properties"]["Timeout"]


def test_a_functions_variables_are_settings_of_the_server() -> None:
    fields = ServerSettings.model_fields | SweeperSettings.model_fields
    known = {f"FORGE_{name.upper()}" for name in fields}
    for name, function in of_type(translated(), "AWS::Lambda::Function").items():
        given = set(function["Environment"]["Variables"])
        needed = {"FORGE_DATABASE_URL", "FORGE_STORE_URL", "FORGE_SERVER_SECRET"}
        assert needed <= given, name
        scale = {f"FORGE_SCALE_{field.upper()}" for field in ScaleSettings.model_fields}
        own = {"Enrol": {"FORGE_ENROL_ROLE"}, "Scale": scale}.get(name, set())
        assert given - known - own == {"PGSSLROOTCERT"}


def test_secrets_are_named_and_not_written() -> None:
    for function in of_type(translated(), "AWS::Lambda::Function").values():
        variables = function["Environment"]["Variables"]
        assert variables["FORGE_SERVER_SECRET"]["Fn::Sub"].startswith("{{resolve:secretsmanager:${")
        for url in subs(variables["FORGE_DATABASE_URL"]):
            assert re.match(r"(postgresql://forge:)?\{\{resolve:secretsmanager:\$\{", url)
            assert url.endswith(("/forge?sslmode=verify-full", ":SecretString:url}}"))
    (database,) = of_type(parsed("database.yaml"), "AWS::RDS::DBInstance").values()
    assert database["MasterUserPassword"]["Fn::Sub"].startswith("{{resolve:secretsmanager:${")
    (secret,) = of_type(translated(), "AWS::SecretsManager::Secret").values()
    assert secret["GenerateSecretString"]["PasswordLength"] >= 32
    # Neither a token nor a reference to one: many can read user data.
    user_data = json.dumps(of_type(parsed("workers.yaml"), "AWS::EC2::LaunchTemplate"))
    assert "resolve:" not in user_data
    assert not re.search(r"fg[wk]_", user_data)


def subs(value: Any) -> Iterator[str]:  # noqa: ANN401  any JSON
    """Yield the texts of every `Fn::Sub` inside a value."""
    if isinstance(value, dict):
        if "Fn::Sub" in value:
            yield value["Fn::Sub"]
        value = list(value.values())
    if isinstance(value, list):
        for one in value:
            yield from subs(one)


@pytest.mark.parametrize("name", TEMPLATES)
def test_every_text_that_an_operator_gives_has_a_pattern(name: str) -> None:
    for parameter, given in parsed(name)["Parameters"].items():
        if given["Type"] == "Number" or "AllowedValues" in given:
            assert {"MinValue", "MaxValue"} <= set(given) or "AllowedValues" in given, parameter
            continue
        if given["Type"].startswith("AWS::SSM::Parameter::Value"):
            continue
        pattern = given["AllowedPattern"]
        assert pattern.startswith("^"), parameter
        assert pattern.endswith("$"), parameter
        for hostile in HOSTILE:
            assert not re.fullmatch(pattern, hostile), f"{parameter} takes {hostile!r}"
        for value in defaults(given):
            assert re.fullmatch(pattern, value), f"{parameter} refuses its own default"
        if parameter in SAMPLE:
            assert re.fullmatch(pattern, SAMPLE[parameter])


def defaults(given: dict[str, Any]) -> list[str]:
    """Return a parameter's default, split if it is a list."""
    if "Default" not in given:
        return []
    default: str = given["Default"]
    return default.split(",") if given["Type"] == "CommaDelimitedList" else [default]


def statements(template: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield every statement that grants a role something, with its place."""
    for name, role in of_type(template, "AWS::IAM::Role").items():
        assert "AWSLambdaBasicExecutionRole" not in json.dumps(role.get("ManagedPolicyArns", []))
        for policy in role.get("Policies", []):
            for statement in policy["PolicyDocument"]["Statement"]:
                yield f"{name}.{policy['PolicyName']}", statement
    for name, policy in of_type(template, "AWS::IAM::Policy").items():
        for statement in policy["PolicyDocument"]["Statement"]:
            yield name, statement


def test_a_role_may_do_what_it_does_and_no_more() -> None:
    allowed: dict[str, set[str]] = {}
    for place, statement in statements(translated()):
        actions = statement["Action"]
        actions = [actions] if isinstance(actions, str) else actions
        assert not [action for action in actions if "*" in action], place
        # AWS offers no other resource for these two.
        described = {"autoscaling:DescribeAutoScalingGroups", "ec2:DescribeInstances"}
        assert statement["Resource"] != "*" or set(actions) == described, place
        allowed.setdefault(place, set()).update(actions)
    logs = {"logs:CreateLogStream", "logs:PutLogEvents"}
    objects = {"s3:GetObject", "s3:PutObject", "s3:ListBucket"}
    assert allowed == {
        **{f"{name}Role.log": logs for name in FUNCTIONS},
        "SubmitRole.objects": objects,
        "DashboardRole.objects": objects - {"s3:PutObject"},
        "WorkersRole.objects": objects | {"s3:DeleteObject"},
        "SweepRole.objects": {"s3:DeleteObject", "s3:ListBucket"},
        **{f"{name}Role.failed": {"sqs:SendMessage"} for name in SCHEDULED},
        "ScaleRole.machines": {
            "autoscaling:DescribeAutoScalingGroups",
            "autoscaling:SetDesiredCapacity",
            "autoscaling:TerminateInstanceInAutoScalingGroup",
            "ec2:DescribeInstances",
        },
        "WorkerPolicy": {"execute-api:Invoke"},
    }


def _resources(action: str) -> dict[str, object]:
    """Return the resources on which each statement allows an action."""
    return {
        place: statement["Resource"]
        for place, statement in statements(translated())
        if action in statement["Action"]
    }


def test_users_write_bundles_and_workers_write_jobs() -> None:
    puts = _resources("s3:PutObject")
    code = [{"Fn::Sub": "${Bucket.Arn}/forge/" + kind} for kind in ("bundles/*", "images/*")]
    assert puts == {
        "SubmitRole.objects": code,
        "WorkersRole.objects": {"Fn::Sub": "${Bucket.Arn}/forge/jobs/*"},
    }
    assert _resources("s3:DeleteObject") == {
        "WorkersRole.objects": {"Fn::Sub": "${Bucket.Arn}/forge/jobs/*/checkpoints/*"},
        "SweepRole.objects": {"Fn::Sub": "${Bucket.Arn}/forge/jobs/*"},
    }


def test_the_bucket_is_closed() -> None:
    (bucket,) = of_type(translated(), "AWS::S3::Bucket").values()
    assert set(bucket["PublicAccessBlockConfiguration"].values()) == {True}
    assert bucket["OwnershipControls"]["Rules"] == [{"ObjectOwnership": "BucketOwnerEnforced"}]
    assert "BucketEncryption" in bucket
    (policy,) = of_type(translated(), "AWS::S3::BucketPolicy").values()
    denied = policy["PolicyDocument"]["Statement"]
    assert {s["Effect"] for s in denied} == {"Deny"}
    conditions = [s["Condition"] for s in denied]
    assert {"Bool": {"aws:SecureTransport": "false"}} in conditions
    assert {"NumericLessThan": {"s3:TlsVersion": "1.2"}} in conditions


def test_what_is_kept_outlasts_the_stack_and_unfinished_uploads_do_not_last() -> None:
    resources = translated()["Resources"]
    for name in ("Bucket", "ServerSecret"):
        assert resources[name]["DeletionPolicy"] == "Retain"
        assert resources[name]["UpdateReplacePolicy"] == "Retain"
    rules = resources["Bucket"]["Properties"]["LifecycleConfiguration"]["Rules"]
    assert rules[0]["AbortIncompleteMultipartUpload"]["DaysAfterInitiation"] <= 7
    optional = rules[1]["Fn::If"][2]
    assert optional["Prefix"] == "forge/jobs/"


def test_every_log_has_an_end() -> None:
    logs = of_type(translated(), "AWS::Logs::LogGroup")
    assert len(logs) == 1 + len(of_type(translated(), "AWS::Lambda::Function"))
    assert all(log["RetentionInDays"] == {"Ref": "LogDays"} for log in logs.values())


def test_the_sweeper_and_the_autoscaler_go_by_the_clock_and_their_failures_are_kept() -> None:
    rules = of_type(translated(), "AWS::Events::Rule").values()
    assert [rule["ScheduleExpression"] for rule in rules] == ["rate(1 minute)"] * len(SCHEDULED)
    configs = of_type(translated(), "AWS::Lambda::EventInvokeConfig")
    kept = {
        config["FunctionName"]["Ref"]: config["DestinationConfig"] for config in configs.values()
    }
    failed = {"OnFailure": {"Destination": {"Fn::GetAtt": ["Failed", "Arn"]}}}
    assert kept == dict.fromkeys(SCHEDULED, failed)


def test_no_function_takes_more_connections_than_a_small_database_has() -> None:
    functions = of_type(translated(), "AWS::Lambda::Function").values()
    at_once = [function["ReservedConcurrentExecutions"] for function in functions]
    # An instance has two at most; a db.t4g.medium has 400.
    assert 2 * sum(at_once) < 300


def test_somebody_is_told_when_a_scheduled_function_fails() -> None:
    alarms = of_type(translated(), "AWS::CloudWatch::Alarm")
    told = {"Fn::If": ["Alarms", [{"Ref": "AlarmTopicArn"}], {"Ref": "AWS::NoValue"}]}
    for name, alarm in alarms.items():
        assert alarm["AlarmActions"] == told, name
    watched = {d["Value"]["Ref"] for a in alarms.values() for d in a["Dimensions"]}
    assert {*SCHEDULED, "Workers", "Api"} == watched
    assert alarms["SweepAway"]["TreatMissingData"] == "breaching"


def test_only_enrolment_asks_who_signed() -> None:
    (api,) = of_type(translated(), "AWS::ApiGatewayV2::Api").values()
    signed = {
        path for path, methods in api["Body"]["paths"].items() if "AWS_IAM" in json.dumps(methods)
    }
    assert signed == {"/api/v1/workers/enrol"}


def test_machines_keep_their_metadata_to_themselves() -> None:
    (machine,) = of_type(parsed("workers.yaml"), "AWS::EC2::LaunchTemplate").values()
    data = machine["LaunchTemplateData"]
    metadata = data["MetadataOptions"]
    assert (metadata["HttpTokens"], metadata["HttpPutResponseHopLimit"]) == ("required", 1)
    assert data["BlockDeviceMappings"][0]["Ebs"]["Encrypted"] is True
    (group,) = of_type(parsed("workers.yaml"), "AWS::EC2::SecurityGroup").values()
    assert "SecurityGroupIngress" not in group


def test_machines_are_spot_and_none_without_demand() -> None:
    (group,) = of_type(parsed("workers.yaml"), "AWS::AutoScaling::AutoScalingGroup").values()
    bought = group["MixedInstancesPolicy"]["InstancesDistribution"]
    assert bought["OnDemandBaseCapacity"] == bought["OnDemandPercentageAboveBaseCapacity"] == 0
    assert group["MinSize"] == "0"
    # Every deployment would reset a size given here, whatever is running.
    assert "DesiredCapacity" not in group


def test_only_the_functions_reach_the_database_and_its_last_state_is_kept() -> None:
    resources = parsed("database.yaml")["Resources"]
    database = resources["Database"]
    assert database["DeletionPolicy"] == database["UpdateReplacePolicy"] == "Snapshot"
    given = database["Properties"]
    assert (given["PubliclyAccessible"], given["StorageEncrypted"]) == (False, True)
    assert given["VPCSecurityGroups"] == [{"Fn::GetAtt": ["Callers", "GroupId"]}]
    (let_in,) = resources["Callers"]["Properties"]["SecurityGroupIngress"]
    assert let_in["SourceSecurityGroupId"] == {"Fn::GetAtt": ["Functions", "GroupId"]}
    assert not {"AWS::EC2::InternetGateway", "AWS::EC2::NatGateway"} & {
        resource["Type"] for resource in resources.values()
    }


@pytest.mark.parametrize("nested", NESTED)
def test_a_nested_stack_is_given_what_it_asks_for(nested: str) -> None:
    given = parsed("template.yaml")["Resources"][nested]["Properties"]["Parameters"]
    asked = parsed(NESTED[nested])["Parameters"]
    assert set(given) <= set(asked)
    assert {name for name, p in asked.items() if "Default" not in p} <= set(given)
    for name, value in given.items():
        if isinstance(value, dict) and value.get("Ref") in parsed("template.yaml")["Parameters"]:
            ours = parsed("template.yaml")["Parameters"][value["Ref"]]
            theirs = asked[name]
            # Values accepted here must be accepted there, except the empty name, which makes none.
            patterns = [p.get("AllowedPattern", "").replace("(|", "") for p in (ours, theirs)]
            assert patterns[0].rstrip(")$") == patterns[1].rstrip(")$"), name
            assert ours.get("MaxValue") == theirs.get("MaxValue"), name
