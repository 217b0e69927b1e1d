"""Packets and frames on a clock in seconds."""
