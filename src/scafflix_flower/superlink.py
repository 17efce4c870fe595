"""Flower's SuperLink with two addresses: one for nodes, one for its operator.

The public address answers only the paths of Flower's Fleet interface. The Control interface (submit
a run, register a node) and the Runtime interface (for a ServerApp's requests) are on a loopback
port and require the operator's secret.
"""

from __future__ import annotations

import argparse
import asyncio
import hmac
import json
import os
from collections.abc import Sequence
from logging import WARNING
from pathlib import Path
from typing import Any, cast

import uvicorn
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.serialization import load_ssh_public_key
from fastapi import FastAPI
from fastapi.routing import APIRoute
from flwr.common.constant import (
    ACCESS_TOKEN_KEY,
    FLWR_INTERNAL_GRPC_CONTROL_API,
    FLWR_INTERNAL_GRPC_FLEET_API,
    ISOLATION_MODE_PROCESS,
    NOOP_ACCOUNT_NAME,
    NOOP_FLWR_AID,
    TRANSPORT_TYPE_GRPC_RERE,
)
from flwr.proto.control_pb2 import RegisterNodeRequest, StartRunRequest, StartRunResponse
from flwr.supercore import log
from flwr.supercore.auth.typing import AccountInfo
from flwr.supercore.constant import FLWR_IN_MEMORY_DB_NAME
from flwr.supercore.error import ApiErrorCode, FlowerError
from flwr.supercore.http_logging import get_uvicorn_log_config
from flwr.supercore.logger import console_handler
from flwr.supercore.primitives.asymmetric import public_key_to_bytes
from flwr.superlink.auth_plugin import NoOpControlAuthnPlugin
from flwr.superlink.cli.flower_superlink import SuperLinkLifespan
from flwr.superlink.config_loader import SuperLinkLifespanConfig
from flwr.superlink.main import create_app
from flwr.superlink.routers.fleet.router import router as fleet
from flwr.superlink.servicer.control import control_handlers
from starlette.datastructures import Headers
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from scafflix_flower import deliveries, own_app, replies
from scafflix_flower.own_app import substitute

LOOPBACK = "127.0.0.1"
start_run = control_handlers.start_run
FOR_NODES = frozenset(route.path for route in fleet.routes if isinstance(route, APIRoute))


class NodesOnly:
    """The app as nodes see it: only the paths of the Fleet interface exist."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
        elif scope["type"] == "http" and scope["path"] in FOR_NODES:
            status = replies.refusal_of(Headers(scope=scope))
            app = self.app if status is None else PlainTextResponse("", status_code=status)
            await app(scope, receive, send)
        elif scope["type"] == "http":
            log(
                WARNING,
                "Refused %r from %s: this path is not for nodes",
                scope["path"],
                scope["client"],
            )
            refusal = PlainTextResponse("Only nodes are served here.\n", status_code=404)
            await refusal(scope, receive, send)
        else:
            await send({"type": "websocket.close"})


class OperatorOnly(NoOpControlAuthnPlugin):
    """Control requests must carry the operator's secret."""

    def __init__(self, secret: bytes) -> None:
        super().__init__()
        self.secret = secret

    def validate_tokens_in_metadata(
        self, metadata: Sequence[tuple[str, str | bytes]]
    ) -> tuple[bool, AccountInfo | None]:
        given = str(dict(metadata).get(ACCESS_TOKEN_KEY, "")).encode()
        if not hmac.compare_digest(given, self.secret):
            return False, None
        return super().validate_tokens_in_metadata(metadata)

    def refresh_tokens(
        self, metadata: Sequence[tuple[str, str | bytes]]
    ) -> tuple[Sequence[tuple[str, str | bytes]] | None, AccountInfo | None]:
        return None, None


def start_own_app(request: StartRunRequest, *others: Any, **more: Any) -> StartRunResponse:
    """Replaces Flower's own function: a run of any other app is refused at the door."""
    try:
        own_app.check(request.fab.content)
    except own_app.OtherAppError as error:
        raise FlowerError(ApiErrorCode.INVALID_APP_SPEC, str(error), str(error)) from None
    return start_run(request, *others, **more)


def register(app: FastAPI, keys: Sequence[Path]) -> dict[str, int]:
    """Admit the nodes with these keys; for each client, after whom its file is named, the node."""
    account = AccountInfo(flwr_aid=NOOP_FLWR_AID, account_name=NOOP_ACCOUNT_NAME)
    state, nodes = app.state.linkstate_factory.state(), {}
    for path in keys:
        try:
            key = public_key_to_bytes(cast(Any, load_ssh_public_key(path.read_bytes())))
            asked = RegisterNodeRequest(public_key=key)
            nodes[path.stem] = control_handlers.register_node(asked, account, state).node_id
        except (OSError, ValueError, UnsupportedAlgorithm, FlowerError) as error:
            raise SystemExit(f"The node key {path} could not be registered: {error}") from None
    return nodes


def superlink(secret: bytes, *, node_keys: bool) -> FastAPI:
    """The whole app of Flower's SuperLink."""
    for name in (FLWR_INTERNAL_GRPC_CONTROL_API, FLWR_INTERNAL_GRPC_FLEET_API):
        os.environ.pop(name, None)  # these would open more addresses
    config = SuperLinkLifespanConfig(
        control_address="",
        health_server_address=None,
        host=LOOPBACK,
        port=0,
        insecure=True,
        certificates=None,
        superexec_auth_secret=secret,
        authn_plugin=OperatorOnly(secret),
        event_log_plugin=None,
        fleet_event_log_plugin=None,
        enable_event_log=False,
        artifact_provider=None,
        enable_supernode_auth=node_keys,
        fleet_api_type=TRANSPORT_TYPE_GRPC_RERE,
        fleet_api_address=None,
        simulation=False,
        ssl_ca_certfile=None,
        ssl_certfile=None,
        ssl_keyfile=None,
        database=FLWR_IN_MEMORY_DB_NAME,
        isolation=ISOLATION_MODE_PROCESS,  # our job runs the app, not Flower
        runtime_dependency_install=False,
    )
    return create_app(config, SuperLinkLifespan)


async def serve(app: ASGIApp, control_port: int, **public: Any) -> None:
    """Serve both addresses until a signal; the later server passes it on to the earlier."""
    logs = get_uvicorn_log_config(console_handler.level)
    at_nodes = uvicorn.Config(NodesOnly(app), log_config=logs, **public)
    at_home = uvicorn.Config(
        app, host=LOOPBACK, port=control_port, log_config=logs, lifespan="off", access_log=False
    )
    await asyncio.gather(uvicorn.Server(at_nodes).serve(), uvicorn.Server(at_home).serve())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--host", required=True)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--control-port", type=int, required=True)
    parser.add_argument("--secret-file", type=Path, required=True)
    parser.add_argument(
        "--certificates", type=Path, help="Folder with server.crt and server.key, for TLS."
    )
    parser.add_argument(
        "--key", type=Path, action="append", default=[], help="Admit only nodes with such a key."
    )
    parser.add_argument("--nodes-file", type=Path, required=True, help="Which node has which key.")
    asked = parser.parse_args()
    tls: dict[str, Any] = {}
    if asked.certificates is not None:
        tls = {"ssl_certfile": asked.certificates / "server.crt"}
        tls |= {"ssl_keyfile": asked.certificates / "server.key"}
    replies.take_only_own_replies()
    deliveries.deliver_until_confirmed()
    substitute(control_handlers, "start_run", start_own_app)
    app = superlink(asked.secret_file.read_bytes(), node_keys=bool(asked.key))
    asked.nodes_file.write_text(json.dumps(register(app, asked.key)))
    asyncio.run(serve(app, asked.control_port, host=asked.host, port=asked.port, **tls))


if __name__ == "__main__":
    main()
