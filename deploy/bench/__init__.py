"""Measuring what serves: rounds, whether they are believed, and what they are held against."""
