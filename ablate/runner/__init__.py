"""Runner: a plan in, sealed records and ledger entries out. Never imports the judge."""
