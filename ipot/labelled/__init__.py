"""Fields with named dimensions, in and out."""
