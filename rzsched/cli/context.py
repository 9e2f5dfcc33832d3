"""What every command knows: the server, the namespace, and how much to say."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import click

from rzsched.cli.secrets import remember_url
from rzsched.client import Client
from rzsched.config import DEFAULT_NAMESPACE


@dataclass(slots=True)
class Session:
    """None means "not said", so that an App's own word may hold."""

    url: str | None = None
    namespace: str | None = None
    verbose: bool = False

    def __post_init__(self) -> None:
        remember_url(self.url)

    def client(self) -> Client:
        return Client(self.url, DEFAULT_NAMESPACE if self.namespace is None else self.namespace)


pass_session = click.make_pass_decorator(Session)


def json_option(command: Callable[..., Any]) -> Callable[..., Any]:
    return click.option("--json", is_flag=True, help="Print one JSON document.")(command)


def payload_option(command: Callable[..., Any]) -> Callable[..., Any]:
    return click.option("--payload", is_flag=True, help="Show the job's arguments too.")(command)
