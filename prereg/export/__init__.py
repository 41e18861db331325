"""Documents of a registration for people, written from the study, the lock and the ledger, and from nothing else."""
