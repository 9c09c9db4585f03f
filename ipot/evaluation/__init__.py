"""Prediction, scores, simple predictors to compare with, and bounds."""
