"""Where a video comes from: a local file, an address, the chapters of a camera."""
