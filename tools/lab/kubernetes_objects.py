"""Kubernetes' objects held against the models that its own Python client has of them, without a server."""
import json
import sys
import typing

from lab.kubernetes_node import python_folder


def _model(content: dict) -> str:
    """The client's name for the type: group, if two have the same name, then version and kind."""
    group, _, version = content["apiVersion"].rpartition("/")
    shared = content["kind"] == "ResourceClaim"
    return (group.partition(".")[0].title() if shared else "") + version.title() + content["kind"]


def check(content: dict) -> None:
    """AssertionError: a field is not known, has another type or is missing."""
    if str(python_folder()) not in sys.path:
        sys.path.insert(0, str(python_folder()))
    client: typing.Any = __import__("kubernetes.client").client
    api = client.ApiClient()
    read = api.deserialize(json.dumps(content), _model(content), "application/json")
    again = api.sanitize_for_serialization(read)
    assert again == content, f"{_model(content)}: {json.dumps(content, indent=1)}\nis read as\n{again}"
