"""Zero- and few-shot tasks through the language-model evaluation harness, offline."""
