"""The V4.1 model as pure functions on arrays: parameters, declarations and forward passes."""
