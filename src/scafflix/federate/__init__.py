"""The same methods in a real federation: durable private state, exactly-once control variates.

The cores (`client`, `server`) know no transport; `flower_client` and `flower_server` put them on
Flower, an optional extra, which nothing else here imports.
"""
