"""A trained model: arrays in, arrays of the same kind out; loaded, asked, scored and saved."""
