"""The ClientApp."""

from scafflix.deploy.flower_client import client_app
from scafflix.machine import use_all_cores

use_all_cores()
app = client_app()
