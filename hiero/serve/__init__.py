"""A server and a page to look at videos: browse steps, search in words, edit, export."""
