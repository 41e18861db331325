"""Text and token ids: corpora, tokenizers, shards, and the batches that training reads."""
