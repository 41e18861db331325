"""Documents of a registration for people: OSF, AsPredicted, and the readable page."""
