"""The rollback decision: a changed KV cache against the 16-bit baseline, by evaluation results."""
