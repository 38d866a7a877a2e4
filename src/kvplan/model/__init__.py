"""What a model must keep in memory: caches that grow with tokens, and weights. No I/O."""
