"""Documents of a registration for people: OSF, and the readable page."""
