"""The difference between two arms of an adaptive log, by corrected least squares."""
