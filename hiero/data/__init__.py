"""From files to padded batches: features, windows, batches."""
