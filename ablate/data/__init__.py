"""Data: corpora, tokenizers, shards of token ids, and the batches that training reads."""
