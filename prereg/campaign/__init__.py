"""Campaign: many changes tried one after the other against the best so far, with one error rate over all of them."""
