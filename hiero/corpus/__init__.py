"""A collection of videos as one searchable table of steps."""
