"""One module per network, and the registry."""
