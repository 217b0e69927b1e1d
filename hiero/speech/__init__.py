"""Transcripts, recognition, and what speech says about steps and answers."""
