"""`ipot.fit`: open your own data, choose sizes, train, and save the model."""
