"""The ClientApp."""

from scafflix.deploy.flower_client import client_app

app = client_app()
