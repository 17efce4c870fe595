"""The ServerApp."""

from scafflix.federate.flower_server import server_app

app = server_app()
