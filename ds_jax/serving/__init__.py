"""HTTP service: three APIs over one replica, with admission, streaming, drain and metrics."""
