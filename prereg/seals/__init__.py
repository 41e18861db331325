"""Proof of time and author for a lock: ssh, git, `openssl ts`."""
