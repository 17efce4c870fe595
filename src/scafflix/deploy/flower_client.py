"""The client on Flower: every message, whatever its type, goes to the core.

Flower starts a process for each message and keeps nothing of ours between them; all that must
last is in the core's folder.
"""

from __future__ import annotations

from collections.abc import Callable

from flwr.app import Context, Message
from flwr.clientapp import ClientApp

from scafflix.deploy.client import ClientCore
from scafflix.deploy.configuration import config_from
from scafflix.deploy.messages import Refusal
from scafflix.deploy.node import client_of
from scafflix.deploy.wire import pack, unpack
from scafflix.errors import ScafflixError

MakeCore = Callable[[Context], ClientCore]


def core_of(context: Context) -> ClientCore:
    """From the run's configuration and the node's own settings."""
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
