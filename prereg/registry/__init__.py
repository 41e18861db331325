"""Registrations on disk: paths, canonical bytes, ledger, lock, amendments, plan and looks."""
