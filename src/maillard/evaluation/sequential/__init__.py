"""Estimates and intervals that read a log in its order: valid where every choice depended on what came before."""
