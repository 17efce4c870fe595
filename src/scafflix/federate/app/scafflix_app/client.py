"""The ClientApp."""

from scafflix.core.machine import use_all_cores
from scafflix.federate.flower_client import client_app

use_all_cores()
app = client_app()
