"""From arrays on disk to batches: the store, data sets, views of them, statistics."""
