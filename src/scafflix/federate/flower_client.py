"""The client as a Flower app, for SuperNodes that Flower itself starts.

Flower starts a process for each message and keeps no state for us in between; everything that must
last is in the core's folder. The nodes of `scafflix deploy` keep a process instead: `worker`.
"""

from __future__ import annotations

from collections.abc import Callable

from flwr.app import Context, Message
from flwr.clientapp import ClientApp

from scafflix.federate.client import ClientCore
from scafflix.federate.configuration import config_from
from scafflix.federate.node import client_of
from scafflix.federate.table_client import TableClient
from scafflix.federate.worker import answer
from scafflix_flower.records import parcel_of, record_of

MakeCore = Callable[[Context], ClientCore | TableClient]


def core_of(context: Context) -> ClientCore | TableClient:
    """Make the core from the run's configuration and the node's own settings."""
    return client_of(config_from(str(context.run_config["settings"])), context.node_config)


def client_app(make: MakeCore = core_of) -> ClientApp:
    """A ClientApp around a core: every message, whatever its type, goes to it."""
    app = ClientApp()

    def handle(message: Message, context: Context) -> Message:
        reply = answer(make(context), parcel_of(message.content))
        return Message(record_of(reply), reply_to=message)

    app.query()(handle)
    app.train()(handle)
    app.evaluate()(handle)
    return app
