"""The runs of one configuration trained together, one seed per slice of every tensor."""
