"""Numerics and figures that two papers or more need, and nothing else."""
