"""Differences between two arms of one adaptive log, by least squares made normal again."""
