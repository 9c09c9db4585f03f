"""Learn the solution operators of PDEs on any points, and query them anywhere."""

__version__ = "0.1.0"
