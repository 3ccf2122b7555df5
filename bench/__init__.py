"""Figures, always as ratios against something in the same run."""
