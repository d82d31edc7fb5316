def echo(payload):
    yield payload
