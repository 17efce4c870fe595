"""The two apps that Flower starts; their code is in scafflix.federate."""
