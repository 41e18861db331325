"""Operating characteristics before data: power, error rates, undecidable designs."""
