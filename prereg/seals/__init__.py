"""Seals of a lock, proof of its time and author: ssh, git, `openssl ts`."""
