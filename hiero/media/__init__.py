"""Videos: where they come from, decoding, sound, and cutting clips."""
