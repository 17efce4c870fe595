"""The same methods in a real federation: durable private state, exactly-once control variates.

The cores (`client`, `server`) do not depend on a transport; `flower_client` and `flower_server` run
them on Flower, an optional extra.
"""
