"""One module per annotation or exchange format."""
