"""From video files to feature files: one video, a collection, a Ray cluster."""
