"""What Flower starts: the two apps, whose parts are in scafflix.federate."""
