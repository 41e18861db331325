"""Documents of a registration for people: the OSF form, and the readable page."""
