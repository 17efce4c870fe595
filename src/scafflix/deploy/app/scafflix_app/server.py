"""The ServerApp."""

from scafflix.deploy.flower_server import server_app

app = server_app()
