"""The whole stack of infra/template.yaml, deployed to moto as far as its CloudFormation goes."""

from __future__ import annotations

import io
import json
import re
import warnings
from contextlib import contextmanager
from copy import deepcopy
from functools import cache
from typing import TYPE_CHECKING, Any
from unittest.mock import patch
from zipfile import ZipFile

import boto3
from moto.cloudformation import models
from support.cloud.cloudformation import NESTED, parsed, translated

if TYPE_CHECKING:
    from collections.abc import Iterator

REGION = "eu-west-1"
# What moto's CloudFormation cannot make. What others refer to is made otherwise, or only named.
LACKING = (
    "AWS::ApiGatewayV2::Api",
    "AWS::ApiGatewayV2::Stage",
    "AWS::Budgets::Budget",
    "AWS::CloudWatch::Alarm",
    "AWS::Lambda::Alias",
    "AWS::Lambda::EventInvokeConfig",
    "AWS::S3::BucketPolicy",
    "AWS::SecretsManager::Secret",
    # It would run the function in a container that it downloads.
    "Custom::Migration",
)
DYNAMIC = re.compile(r"\{\{resolve:secretsmanager:(arn:[^}]+?):SecretString(?::(\w+))?\}\}")
NESTED_OUTPUT = re.compile(r"\$\{(\w+)\.Outputs\.(\w+)\}")
API_ID = "a1b2c3d4e5"


@contextmanager
def deployed(endpoint: str) -> Iterator[Stack]:
    """Deploy the stack to the moto server of this process."""
    with (
        patch.object(models.Stack, "get_cfn_attribute", _attribute, create=True),
        warnings.catch_warnings(),
    ):
        # Its own code uses what later versions of Python will not have.
        warnings.simplefilter("ignore")
        yield Stack(endpoint)


class Stack:
    """A deployed stack."""

    def __init__(self, endpoint: str) -> None:
        self._endpoint = endpoint
        self._upload()
        api = {"ParameterKey": "Api", "ParameterValue": API_ID}
        secret = {"ParameterKey": "ServerSecret", "ParameterValue": self._secret("s" * 64)}
        self._client("cloudformation").create_stack(
            StackName="forge",
            TemplateBody=json.dumps(_possible(deepcopy(translated()))),
            Parameters=[api, secret, *self._machines()],
            Capabilities=["CAPABILITY_IAM"],
        )

    def _upload(self) -> None:
        """Put the code and the nested templates where the template looks for them."""
        store = self._client("s3")
        code = io.BytesIO()
        with ZipFile(code, "w") as archive:
            archive.writestr("forge_functions/__init__.py", "")
        where = {"LocationConstraint": REGION}
        store.create_bucket(Bucket="code", CreateBucketConfiguration=where)
        store.put_object(Bucket="code", Key="forge-lambda.zip", Body=code.getvalue())
        for file in NESTED.values():
            template = _possible(deepcopy(parsed(file)))
            for name, given in template["Parameters"].items():
                if name == "Secret":
                    given["Default"] = self._secret('{"username": "forge", "password": "p4ss"}')
                # moto knows no such image; its own is of no use either.
                if name == "ImageId":
                    given.update(Type="String", Default=self.image())
            store.put_object(Bucket="code", Key=file, Body=json.dumps(template))

    def _machines(self) -> list[dict[str, str]]:
        """Return the parameters that say where workers are, in the account's own network."""
        machines = self._client("ec2")
        (network,) = machines.describe_vpcs()["Vpcs"]
        subnets = machines.describe_subnets()["Subnets"]
        given = {
            "WorkerVpcId": network["VpcId"],
            "WorkerSubnetIds": subnets[0]["SubnetId"],
            "WorkerPackage": "forge-queue[worker] @ https://files.example/forge.whl",
            # moto does not split the default of a list.
            "WorkerInstanceTypes": "g5.*,g6.*",
        }
        return [{"ParameterKey": k, "ParameterValue": v} for k, v in given.items()]

    def _secret(self, text: str) -> str:
        made = self._client("secretsmanager").create_secret(Name=f"s{len(text)}", SecretString=text)
        return str(made["ARN"])

    def image(self) -> str:
        """Return some image."""
        return str(self._client("ec2").describe_images()["Images"][0]["ImageId"])

    def find(self, service: str, verb: str, **params: Any) -> dict[str, Any]:  # noqa: ANN401  boto3's own
        """Ask one of AWS's APIs."""
        found: dict[str, Any] = getattr(self._client(service), verb)(**params)
        return found

    def outputs(self) -> dict[str, str]:
        """Return the stack's outputs."""
        (stack,) = self._client("cloudformation").describe_stacks(StackName="forge")["Stacks"]
        assert stack["StackStatus"] == "CREATE_COMPLETE"
        return {one["OutputKey"]: one["OutputValue"] for one in stack["Outputs"]}

    def function(self, name: str) -> dict[str, Any]:
        """Return a function's configuration, with secrets filled in as CloudFormation does."""
        found = self._client("cloudformation").describe_stack_resource(
            StackName="forge", LogicalResourceId=name
        )
        function = found["StackResourceDetail"]["PhysicalResourceId"]
        told: dict[str, Any] = self._client("lambda").get_function_configuration(
            FunctionName=function
        )
        variables = told["Environment"]["Variables"]
        told["Environment"] = {k: DYNAMIC.sub(self._read, str(v)) for k, v in variables.items()}
        return told

    def _read(self, found: re.Match[str]) -> str:
        held = self._client("secretsmanager").get_secret_value(SecretId=found[1])["SecretString"]
        return str(json.loads(held)[found[2]] if found[2] else held)

    @cache  # noqa: B019  each would read megabytes, and a stack lives as long as its test
    def _client(self, service: str) -> Any:  # noqa: ANN401  boto3's own
        session = boto3.session.Session("test", "test", region_name=REGION)
        return session.client(service, endpoint_url=self._endpoint)  # type: ignore[call-overload]  # any service


def _possible(template: dict[str, Any]) -> dict[str, Any]:
    """Make parameters of what moto lacks, so that everything else can refer to it."""
    resources = template["Resources"]
    for name in [name for name, one in resources.items() if one["Type"] in LACKING]:
        template["Parameters"][name] = {"Type": "String", "Default": name}
        del resources[name]
    written = json.dumps(template)
    # moto reads `${Database.Outputs.Address}` as the attribute `Outputs`.
    possible: dict[str, Any] = json.loads(NESTED_OUTPUT.sub(r"${\1.Outputs:\2}", written))
    return possible


def _attribute(stack: models.Stack, name: str) -> str:
    """Return an output of a nested stack, which moto does not."""
    output = stack.output_map[name[len("Outputs.") :]]
    assert output is not None
    return output.value
