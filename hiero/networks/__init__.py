"""Networks that read pictures, videos and texts, one module for each."""
