"""Data of one's own: fitted, asked, labelled, saved, exported."""
