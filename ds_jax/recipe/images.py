"""The images of a request: what is given to the model, and how much a request has used.

Decides how many tokens images take and what is counted. Never reads an image (image_resolve does).
In: prepared images. Out: counts.
"""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Sequence

from ds_jax.recipe import arguments, image_size
from ds_jax.recipe.image_preprocess import ImageInfo


@dataclasses.dataclass(frozen=True, slots=True, init=False)
class MultiModalData:
    """Images in the order of their placeholders in the prompt."""

    _images: tuple[ImageInfo, ...]

    def __init__(self, images: Sequence[ImageInfo] | None = None) -> None:
        given = () if images is None else arguments.records("images", images, ImageInfo)
        object.__setattr__(self, "_images", given)

    @property
    def images(self) -> list[ImageInfo]:
        """The images, as a new list."""
        return list(self._images)

    def is_empty(self) -> bool:
        """Whether there is no image."""
        return not self._images

    def image_token_adjustment(self) -> int:
        """How many more tokens the images take than their placeholders, which are one each.

        Raises:
          CalcResizeError: an image has a size that cannot be planned.
        """
        return sum(image_size.fit(info.width, info.height).tokens - 1 for info in self._images)


class ImageQuota:
    """What the images of one request have used so far. Give it to every `resolve` of the request.

    Mutated by `ImageResolver.resolve`, which adds all images of a call or none.
    """

    __slots__ = ("_byte_size", "_image_count", "_lock")

    def __init__(self) -> None:
        self._image_count = 0
        self._byte_size = 0
        self._lock = threading.Lock()

    def image_count(self) -> int:
        """Images so far."""
        return self._image_count

    def byte_size(self) -> int:
        """Encoded bytes so far."""
        return self._byte_size

    def add(self, num_images: int, num_bytes: int) -> None:
        """Counts the images of a finished call. Mutates the quota."""
        with self._lock:
            self._image_count += num_images
            self._byte_size += num_bytes
