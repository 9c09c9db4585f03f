"""Models on disk: a folder, a hub, files for other programs."""
