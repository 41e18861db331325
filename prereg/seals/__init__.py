"""Proof of time and author for a lock: ssh, git, RFC 3161, OpenTimestamps."""
