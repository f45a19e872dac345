"""python -m ds_jax.serving --mesh=ep1 --port=8000"""

from ds_jax import command
from ds_jax.serving import launch

if __name__ == "__main__":
    command.start("ds_jax.serving", launch.main)
