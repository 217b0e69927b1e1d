"""What leaves hiero: files for other tools, and a page to look at."""
