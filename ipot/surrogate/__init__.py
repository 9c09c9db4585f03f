"""Trained models: loading, predicting, scoring, plotting and saving."""
