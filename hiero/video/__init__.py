"""From video files to features: decoding on a clock in seconds, and the backbones."""
