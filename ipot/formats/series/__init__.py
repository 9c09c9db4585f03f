"""Fields with named dimensions: windows of frames in, labelled answers out."""
