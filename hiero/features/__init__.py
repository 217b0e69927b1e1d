"""Feature files: extracting, reading and packing them."""
