"""What is observed: model and validation text in, plain numbers out. No files, no hypotheses."""
