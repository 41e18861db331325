"""Zero- and few-shot tasks: what is asked, how a model answers, what the answers come to. Judges nothing."""
