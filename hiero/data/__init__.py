"""From files to padded batches: features, narrations, windows, batches; and a simulator of narrated activity."""
