"""`ipot.fit`: open data of one's own, choose sizes, train, and save the model."""
