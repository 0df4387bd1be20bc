"""One package per paper; each `__init__` exports exactly that paper's public interface."""
