"""Your own data: fit, the fitted model, and the shapes it speaks."""
