"""The client on Flower: every message, whatever its type, goes to the core.

Flower starts a process for each message and keeps no state for us in between; everything that must
last is in the core's folder.
"""

from __future__ import annotations

from collections.abc import Callable

from flwr.app import Context, Message
from flwr.clientapp import ClientApp

from scafflix.core.errors import ScafflixError
from scafflix.federate.client import ClientCore
from scafflix.federate.configuration import config_from
from scafflix.federate.messages import Refusal
from scafflix.federate.node import client_of
from scafflix.federate.wire import pack, unpack

MakeCore = Callable[[Context], ClientCore]


def core_of(context: Context) -> ClientCore:
    """Make the core from the run's configuration and the node's own settings."""
    return client_of(config_from(str(context.run_config["settings"])), context.node_config)


def client_app(make: MakeCore = core_of) -> ClientApp:
    """A ClientApp around a core."""
    app = ClientApp()

    def handle(message: Message, context: Context) -> Message:
        core = make(context)
        try:
            request = unpack(message.content)
        except ScafflixError as error:
            refusal = Refusal("", 0, core.name, 0, "type", f"Client {core.name}: {error}")
            return Message(pack(refusal), reply_to=message)
        return Message(pack(core.handle(request)), reply_to=message)

    app.query()(handle)
    app.train()(handle)
    app.evaluate()(handle)
    return app
